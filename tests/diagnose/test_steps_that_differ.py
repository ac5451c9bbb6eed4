"""Steps that differ, get slower, or become slower at one moment: what is said of them, and why they do."""

from typing import Any

import pytest

from strobe.diagnose.rank import diagnose
from support.recorded import causes, example, of, with_batches


def test_a_processor_that_became_slower_explains_longer_steps() -> None:
    record = example("slowing_down")
    assert "cores" not in of("slowing_down", record)[0].evidence
    record.summary["machine"] |= {"throttles": 7, "hertz": [3.4e9, 1.2e9]}
    finding = of("slowing_down", record)[0]
    assert finding.evidence.endswith("7 times, and slowed down. The cores' clock fell from 3.40 to 1.20 GHz.")
    assert "cooling" in finding.advice


JUMP = {"step": 151, "seconds": [0.08, 0.17], "phase": "other", "phase_seconds": [0.01, 0.1]}
ALL_SLOWER = JUMP | {"phase_seconds": [0.03, 0.065]}


@pytest.mark.parametrize(
    ("jump", "advice"), [(JUMP, "Look for what begins there: "), (ALL_SLOWER, "All parts of a step grew: ")]
)
def test_from_which_step_on_steps_take_longer_is_told(jump: dict[str, Any], advice: str) -> None:
    flat = {"seconds": [0.08, 0.08, 0.17, 0.17], "phase": "other", "rising": 0.7}
    record = example("slowing_down", summary__quarters=flat | {"jump": None})
    assert not of("slowing_down", record)
    record.summary["quarters"]["jump"] = jump
    (finding,) = of("slowing_down", record)
    assert finding.title == "From step 151 on, steps take 2.1 times as long"
    assert finding.evidence.startswith(
        "A typical step takes 80 ms before it, and 170 ms from there to the end of the run"
    )
    assert finding.advice.startswith(advice)
    assert diagnose(record)[0].cause == "slowing_down"
    record.summary["machine"] |= {"hertz": [3.4e9, 1.2e9]}
    assert "cooling" in of("slowing_down", record)[0].advice


def test_what_is_no_jump_of_the_training_is_not_told_as_one() -> None:
    drift = {"seconds": [0.09, 0.12], "phase_seconds": [0.03, 0.04]}
    record = example("slowing_down", summary__quarters={"jump": ALL_SLOWER | drift})
    assert not of("slowing_down", record)  # machines drift so much
    late = JUMP | {"phase": "data_wait", "step": 9}
    record = example("slowing_down", summary__quarters={"jump": late}, summary__num_workers=0)
    assert of("slowing_down", record)
    record.summary["num_workers"] = 4
    assert not of("slowing_down", record)  # until then batches were ready


def test_others_that_come_in_the_middle_of_a_run_are_told_by_when_they_came() -> None:
    record = example("shared_machine")
    assert "From step" not in of("shared_machine", record)[0].evidence
    record.summary["quarters"] = {"jump": ALL_SLOWER}
    assert "From step 151 on, steps take 2.1 times as long" in of("shared_machine", record)[0].evidence
    assert not of("slowing_down", record)


def test_quarters_of_which_two_are_of_one_epoch_may_be_alike() -> None:
    quarters = {"seconds": [0.2, 0.2505, 0.25, 0.3], "phase": "forward", "rising": 0.99}
    assert of("slowing_down", example("slowing_down", summary__quarters=quarters))
    assert not of("slowing_down", example("slowing_down", summary__quarters=quarters | {"rising": 0.7}))


def test_steps_that_get_slower_were_faster_still_at_the_very_start() -> None:
    record = example("slowing_down")
    first = record.summary["quarters"]["seconds"][0]
    (finding,) = of("slowing_down", record)
    assert finding.predicted_speedup.high > record.summary["step_seconds"]["total"] / first


def test_what_grows_is_not_called_one_thread() -> None:
    record = example("single_thread")
    record.summary["quarters"] = {"seconds": [0.06, 0.12, 0.19, 0.29], "phase": "forward"}
    assert causes(record)[0] == "slowing_down"


def test_a_phase_that_grows_alone_is_told_before_the_whole_step_has_grown() -> None:
    record = with_batches(example("nothing"), 900.0)
    assert causes(record) == ["small_batch"]
    total, forward = (record.summary["step_seconds"][name] for name in ("total", "forward"))
    grown = [forward * times for times in (0.8, 0.9, 1.1, 1.2)]
    growing = {"phase": "forward", "phase_seconds": grown, "seconds": [total - forward + one for one in grown]}
    record.summary["quarters"] = growing | {"rising": 0.98}
    assert causes(record) == ["slowing_down"]  # how fast a larger batch is depends on how many steps were replayed
    record.summary["quarters"]["rising"] = 0.6  # as by chance
    assert causes(record) == ["small_batch"]
    rest = [(total - forward) * times for times in (0.87, 0.95, 1.05, 1.13)]
    slower = [one + other for one, other in zip(grown, rest, strict=True)]
    record.summary["quarters"] |= {"rising": 0.98, "seconds": slower}  # all phases: it is the machine
    assert causes(record) == ["small_batch"]


def test_a_collection_or_two_are_no_cause() -> None:
    record = example("garbage_collection")
    record.summary["garbage_steps"] = 3
    assert causes(record) == ["garbage_collection"]
    record.summary["garbage_steps"] = 2
    assert "garbage_collection" not in causes(record)


def test_steps_are_not_uneven_where_they_grow_or_where_others_may_interrupt_them() -> None:
    record = example("uneven_steps", summary__environment__usable_cores=2, summary__uneven__files=None)
    for others, idle, told in ((0.3, 0.5, True), (0.02, 0.05, True), (0.3, 0.05, False)):  # they take idle cores first
        record.summary["machine"] = {"others": others, "idle": idle, "delayed": 0.05}
        assert ("uneven_steps" in causes(record)) == told
    record = example("uneven_steps")
    record.summary["quarters"] = example("slowing_down").summary["quarters"]
    assert "uneven_steps" not in causes(record)


def test_of_uneven_steps_the_line_of_long_ones_is_told() -> None:
    line = {"file": "/home/me/train.py", "line": 7, "function": "step", "code": None, "library": "", "python": 0.0}
    record = example("uneven_steps", summary__uneven__files=None)
    record.summary["uneven"]["phase"] = "forward"
    record.summary["lines"] = [{"phase": "forward", "share": 0.9} | line]
    record.summary["long_lines"] = [{"phase": "forward", "share": 0.8} | line | {"function": "evaluate", "line": 31}]
    (found,) = (one for one in diagnose(record) if one.cause == "uneven_steps")
    within = "80% of the forward pass in long steps is spent in evaluate, at train.py:31."
    assert within in found.evidence
    call = {"phase": "forward", "share": 0.9} | line | {"function": "main", "line": 52, "code": "evaluate(model)"}
    record.summary["calls"] = [call]
    (found,) = (one for one in diagnose(record) if one.cause == "uneven_steps")
    called = "90% of the forward pass in long steps is spent in main, at train.py:52 (`evaluate(model)`)."
    assert f"{called} {within}" in found.evidence
    assert "Only these steps make that call" in found.advice
    record.summary["calls"][0]["share"] = 0.2  # which is not told, so no advice is about it
    (found,) = (one for one in diagnose(record) if one.cause == "uneven_steps")
    assert "Look for what only these steps do" in found.advice
    record.summary["long_lines"] = record.summary["calls"] = []
    assert "train.py" not in next(one for one in diagnose(record) if one.cause == "uneven_steps").evidence


def test_uneven_steps_by_garbage_collection_are_told_so() -> None:
    uneven = {"steps": 20, "usual_seconds": 0.08, "long_seconds": 0.4, "extra_seconds": 0.036, "phase": "forward"}
    (first, *_) = diagnose(example("garbage_collection", summary__uneven=uneven | {"garbage_seconds": 0.035}))
    assert "most of it in 20 of 180 steps" in first.evidence
    record = example("uneven_steps")
    assert causes(record)[0] == "uneven_steps"
    record.summary["uneven"]["garbage_seconds"] = record.summary["uneven"]["extra_seconds"]
    assert "uneven_steps" not in causes(record)
