"""The picture of the step and its ceilings: what is where, and nothing cut."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from strobe.callbacks import timeline
from strobe.callbacks.columns import PHASES
from strobe.present.colours import PHASE_COLOURS, contrast, ink_on
from strobe.report.step_picture import step_picture

Pixels = NDArray[np.uint8]
MARGIN = 30


def record(**changes: Any) -> dict[str, Any]:
    return {
        "data": "EuroSAT",
        "choices": {"data": "eurosat", "loader": "skimage", "model": "resnet18"},
        "batch_size": 32,
        "num_workers": 2,
        "world_size": 1,
        "accelerator": "cpu",
        "images_per_second": {"median": 250.0, "low": 240.0, "high": 262.0},
        "step_seconds": {"total": 0.1, "data_wait": 0.06, "forward": 0.02, "backward": 0.018, "optimizer": 0.002},
        "ceilings": {"loader": 400.0, "model": 1000.0, "joint": 300.0, "intervals": {"loader": [390, 405]}},
    } | changes


def drawn(**changes: Any) -> Pixels:
    picture = step_picture(record(**changes))
    assert picture is not None
    assert picture.dtype == np.uint8
    assert picture.shape[1:] == (1200, 3)
    return picture


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def where(picture: Pixels, colour: str) -> NDArray[np.bool_]:
    return np.asarray((picture == rgb(colour)).all(axis=-1))


def longest_run(picture: Pixels, colour: str, first_row: int = 0) -> int:
    """The widest stretch of a colour in any row from `first_row` on."""
    padded = np.pad(where(picture, colour)[first_row:], ((0, 0), (1, 1))).astype(int)
    changes = np.diff(padded, axis=1)
    return max(
        (int((np.flatnonzero(row == -1) - np.flatnonzero(row == 1)).max()) for row in changes if row.any()), default=0
    )


def ink_of(picture: Pixels) -> tuple[int, int, int, int]:
    """Left, top, right and bottom margins."""
    used = (picture != 255).any(axis=-1)
    rows, columns = np.flatnonzero(used.any(axis=1)), np.flatnonzero(used.any(axis=0))
    return int(columns[0]), int(rows[0]), 1200 - int(columns[-1]) - 1, len(picture) - int(rows[-1]) - 1


def test_phases_are_as_wide_as_their_shares() -> None:
    picture = drawn(ceilings={})
    whole = 1200 - 2 * 36
    for name, part in {"data_wait": 0.6, "forward": 0.2, "backward": 0.18}.items():
        assert longest_run(picture, PHASE_COLOURS[name]) == pytest.approx(part * whole, abs=2)
    assert where(picture, PHASE_COLOURS["optimizer"]).any()
    assert not where(picture, PHASE_COLOURS["transfer"]).any()


def test_phases_stand_in_the_order_of_the_step() -> None:
    equal = dict.fromkeys(reversed(PHASES), 0.1) | {"total": 0.7}
    picture = drawn(ceilings={}, step_seconds=equal)
    row = int(where(picture, PHASE_COLOURS["data_wait"]).sum(axis=1).argmax())
    firsts = [int(np.flatnonzero(where(picture, PHASE_COLOURS[name])[row])[0]) for name in PHASES]
    assert firsts == sorted(firsts)


def test_time_that_no_phase_explains_stays_empty() -> None:
    picture = drawn(ceilings={}, step_seconds={"total": 0.1, "forward": 0.05})
    assert longest_run(picture, "#F4F4F4") == pytest.approx(564, abs=2)


def test_rates_are_on_one_scale() -> None:
    picture, below = drawn(), len(drawn(ceilings={})) - MARGIN
    colours = {"loader": PHASE_COLOURS["data_wait"], "model": PHASE_COLOURS["forward"], "joint": "#B8B8B8"}
    widths = {name: longest_run(picture, colour, below) for name, colour in colours.items()}
    widths["measured"] = longest_run(picture, "#222222", below)
    pixels = widths["model"] / 1000
    for name, rate in {"loader": 400, "joint": 300, "measured": 250}.items():
        assert widths[name] == pytest.approx(rate * pixels, abs=3), name


def test_a_ceiling_that_was_not_measured_is_left_out() -> None:
    below = len(drawn(ceilings={})) - MARGIN
    picture = drawn(ceilings={"loader": 400.0, "model": None})
    assert longest_run(picture, PHASE_COLOURS["data_wait"], below)
    assert not longest_run(picture, PHASE_COLOURS["forward"], below)
    assert len(picture) < len(drawn())


def test_a_far_ceiling_leaves_the_others_to_be_read() -> None:
    below = len(drawn(ceilings={})) - MARGIN
    picture = drawn(ceilings={"loader": 90000.0, "model": 300.0})
    assert longest_run(picture, "#222222", below) > 80


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "Q" * 300},
        {"ceilings": {"loader": 123456789.0, "model": 12345678.0, "joint": 0.01}},
        {"ceilings": {"model": 0.004}, "images_per_second": {"median": 0.003, "low": 0.002, "high": 0.0031}},
        {"images_per_second": dict.fromkeys(("median", "low", "high"))},
        {"step_seconds": dict.fromkeys(("total", *PHASES))},
        {"step_seconds": {"total": 1e3, "a_phase_of_a_later_version_" * 20: 1.0} | dict.fromkeys(PHASES, 1.0)},
        {"step_seconds": {"total": 1e-5, "data_wait": 2e-5}},
    ],
    ids=["long", "large", "small", "no-rate", "no-step", "phases", "more-than-all"],
)
def test_nothing_reaches_into_the_margin(changes: dict[str, Any]) -> None:
    assert min(ink_of(drawn(**changes))) >= MARGIN


def test_an_old_record_has_its_step_and_a_failed_one_nothing() -> None:
    old = record(ceilings={"loader": None, "model": None})
    assert step_picture(old) is not None
    del old["ceilings"]
    assert step_picture(old) is not None
    assert step_picture(old | {"step_seconds": dict.fromkeys(("total", *PHASES))}) is None
    assert step_picture(old | {"step_seconds": None, "images_per_second": None}) is None


def test_colours_are_those_of_the_timeline_and_words_on_them_can_be_read() -> None:
    assert PHASE_COLOURS == timeline._COLORS
    assert tuple(PHASE_COLOURS) == PHASES
    for colour in PHASE_COLOURS.values():
        assert contrast(ink_on(colour), colour) > 4.5
