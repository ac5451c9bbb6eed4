"""Steps that get slower, or become slower at one moment: what is said of them, and to whom they are put down."""

from typing import Any

import pytest

from strobe.diagnose.rank import diagnose
from support.recorded import example, of


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
