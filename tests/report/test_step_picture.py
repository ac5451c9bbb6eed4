"""The picture of the step and its ceilings: what is where, and nothing cut."""

from typing import Any

import pytest
from matplotlib.colors import to_hex

from strobe.callbacks.columns import PHASES
from strobe.callbacks.figures import PHASE_COLOURS, pixels
from strobe.present.raster import contrast, ink_on
from strobe.report.step_picture import step_picture
from support.pages import complete


def record(**changes: Any) -> dict[str, Any]:
    return complete() | {
        "images_per_second": {"median": 250.0, "low": 240.0, "high": 262.0},
        "step_seconds": {"total": 0.1, "data_wait": 0.06, "forward": 0.02, "backward": 0.018, "optimizer": 0.002},
        "ceilings": {"loader": 400.0, "model": 1000.0, "joint": 300.0, "intervals": {"loader": [390, 405]}},
        **changes,
    }


def drawn(**changes: Any) -> Any:
    figure = step_picture(record(**changes))
    assert figure is not None
    return figure


def bars(axes: Any) -> dict[str, tuple[float, float]]:
    """Where a bar of a colour begins and ends."""
    return {to_hex(bar.get_facecolor()).upper(): (bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches}


def test_phases_follow_each_other_by_their_seconds() -> None:
    step = drawn(step_seconds=dict(reversed(record()["step_seconds"].items()))).axes[0]
    edges = {"data_wait": (0, 0.06), "forward": (0.06, 0.08), "backward": (0.08, 0.098), "optimizer": (0.098, 0.1)}
    assert bars(step) == {"#F4F4F4": (0, 0.1)} | {PHASE_COLOURS[name]: pytest.approx(at) for name, at in edges.items()}
    assert [text.get_text() for text in step.texts[:2]] == ["data wait", "60 ms, 60%"]
    (legend,) = drawn().legends
    assert [text.get_text() for text in legend.get_texts()] == ["optimizer 2 ms, 2%"]  # too narrow for its name


def test_rates_are_on_one_scale_and_one_not_measured_is_left_out() -> None:
    rates = drawn().axes[1]
    ends = {PHASE_COLOURS["data_wait"]: 400, PHASE_COLOURS["forward"]: 1000, "#B8B8B8": 300, "#222222": 250}
    assert bars(rates) == {colour: (0, end) for colour, end in ends.items()}
    assert [text.get_text() for text in rates.texts] == ["400 (62% used)", "1,000 (25% used)", "300 (83% used)", "250"]
    assert {(390, 405), (240, 262)} <= {tuple(line.get_xdata()) for line in rates.lines}
    left = bars(drawn(ceilings={"loader": 400.0, "model": None}).axes[1])
    assert left.keys() == {PHASE_COLOURS["data_wait"], "#222222"}


def test_a_far_ceiling_is_cut_and_marked() -> None:
    rates = drawn(ceilings={"loader": 90000.0, "model": 300.0}).axes[1]
    assert rates.get_xlim() == (0, 1200)
    assert "//" in [text.get_text() for text in rates.texts]
    assert "//" not in [text.get_text() for text in drawn().axes[1].texts]


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "$Q$" * 100},
        {"ceilings": {"loader": 123456789.0, "model": 12345678.0, "joint": 0.01}},
        {"ceilings": {"model": 0.004}, "images_per_second": {"median": 0.003, "low": 0.002, "high": 0.0031}},
        {"images_per_second": dict.fromkeys(("median", "low", "high"))},
        {"step_seconds": dict.fromkeys(("total", *PHASES))},
        {"step_seconds": {"total": 1e3, "a_phase_of_a_later_version_" * 20: 1.0} | dict.fromkeys(PHASES, 1.0)},
        {"step_seconds": {"total": 1e-5, "data_wait": 2e-5}},
    ],
    ids=["long", "large", "small", "no-rate", "no-step", "phases", "more-than-all"],
)
def test_odd_records_are_drawn(changes: dict[str, Any]) -> None:
    height, width, _ = pixels(drawn(**changes)).shape
    assert 200 < height < 700
    assert 1000 < width < 1700


def test_an_old_record_has_its_step_and_a_failed_one_nothing() -> None:
    old = record(ceilings={"loader": None, "model": None})
    assert step_picture(old) is not None
    del old["ceilings"]
    assert step_picture(old) is not None
    assert step_picture(old | {"step_seconds": dict.fromkeys(("total", *PHASES))}) is None
    assert step_picture(old | {"step_seconds": None, "images_per_second": None}) is None


def test_words_on_the_phases_colours_can_be_read() -> None:
    for colour in PHASE_COLOURS.values():
        assert contrast(ink_on(colour), colour) > 4.5
