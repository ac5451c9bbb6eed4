"""The flame graph: well-formed, a box for each call, where it belongs, and nothing of this machine in it."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from strobe.bench.convolution.call_tree import Call, walk
from strobe.bench.convolution.event_profile import profile_events
from strobe.bench.convolution.flame import flame_graph
from strobe.bench.convolution.implementations import IMPLEMENTATIONS

SVG = "{http://www.w3.org/2000/svg}"
LEAF = Call("<built-in & co>", 0.25, 0.25, 10)
TINY = Call("b.py:9(tiny)", 0.0001, 0.0001, 1)
TREE = (
    Call("a.py:1(main)", 0.75, 0.2499, 1, (Call("b.py:5(f)", 0.4999, 0.2499, 2, (LEAF,)), TINY)),
    Call("c.py:3(a_function_whose_name_is_far_too_long_for_a_quarter_of_any_page)", 0.25, 0.25),
)


def boxes(text: str) -> list[tuple[str, float, float, float]]:
    """Of each box its tip, and left, top and width."""
    found = []
    for box in ET.fromstring(text).iter(f"{SVG}rect"):
        left, width = (float(box.get(key, "").rstrip("%")) for key in ("x", "width"))
        found.append((box.findtext(f"{SVG}title", ""), left, float(box.get("y", "")), width))
    return found


def test_each_call_is_a_box_above_its_callers() -> None:
    main, f, leaf, other = boxes(flame_graph(TREE, "a flame"))
    assert [box[0].partition(":")[0] for box in (main, f, leaf, other)] == ["a.py", "b.py", "<built-in & co>", "c.py"]
    assert main[1:] == (0, 38, 75)
    assert f[1:] == (0, 19, 49.99)
    assert leaf[1:] == (0, 0, 25)
    assert other[1:] == (75, 38, 25)
    assert main[0].replace("\u00a0", " ") == "a.py:1(main): 75%, 750 ms, own 250 ms, 1 call"


def test_it_can_be_read_by_those_who_cannot_see_it_and_stands_alone() -> None:
    text = flame_graph(TREE, "where & when")
    root = ET.fromstring(text)
    assert (root.tag, root.get("aria-label")) == (f"{SVG}svg", "where & when")
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in text
    assert "var(--ink" in text
    assert "<style>" not in flame_graph(TREE, "beside another", styled=False)


def test_text_is_cut_to_its_box() -> None:
    text = ET.fromstring(flame_graph(TREE, "a flame"))
    labels = [element.text or "" for element in text.iter(f"{SVG}text")]
    assert labels[0] == "a.py:1(main)"
    assert labels[-1].startswith("c.py:3(a_function")
    assert labels[-1].endswith("…")
    assert len(labels[-1]) < 40
    for inner in text.iter(f"{SVG}svg"):
        assert inner is text or inner.get("width", "").endswith("%")  # which cuts what is longer


def test_modules_have_colours_of_their_own() -> None:
    modules = [f"module{number}.py" for number in range(8)]
    calls = tuple(Call(f"{module}:{line}(f)", 1.0, 1.0) for module in modules for line in (1, 2))
    found = ET.fromstring(flame_graph(calls, "colours")).iter(f"{SVG}rect")
    colours = [box.get("class") for box in found]
    assert colours[::2] == colours[1::2]
    assert len(set(colours)) == 8
    ninth = flame_graph((*calls, Call("module8.py:1(f)", 1.0, 1.0)), "more modules than colours")
    assert len(boxes(ninth)) == 17


def test_nothing_is_drawn_of_nothing() -> None:
    assert boxes(flame_graph((), "nothing")) == []
    assert boxes(flame_graph((Call("a.py:1(f)", 0.0, 0.0),), "no time")) == []


@pytest.mark.parametrize("name", ["im2col", "sliding_window_view", "im2col recursive"])
def test_a_real_profile_is_drawn(name: str) -> None:
    image, kernel = np.ones((12, 12)), np.ones((3, 3))
    roots = profile_events(lambda: IMPLEMENTATIONS[name](image, kernel)).roots
    text = flame_graph(roots, name)
    seconds = sum(root.seconds for root in roots)
    assert len(boxes(text)) == sum(call.seconds >= 0.0005 * seconds for call in walk(roots))
    assert all(left + width <= 100.02 for _, left, _, width in boxes(text))
    assert "/site-packages" not in text
    assert "/home" not in text
    assert "convolution/" not in text
