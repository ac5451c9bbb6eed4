"""A host that runs ahead of its GPU, or waits for it, on constructed records: that costs no more than the GPU idles."""

import pytest

from strobe.diagnose.attribution import attribution
from strobe.diagnose.predict import step_of
from strobe.diagnose.promise import bound
from strobe.diagnose.rank import diagnose
from strobe.records.run import Record
from support.recorded import causes, example, of, own_loop


def running_ahead(**host: float) -> Record:
    """A loop whose GPU has work for 98.5 of each 100 ms; its host submits a step in 12, and waits somewhere.

    ``host``: seconds of its phases, where they differ. Recording began with an empty queue, so its steps were short.
    """
    record = example("precision")
    own_loop(record.summary, record.config)
    phases = {"data_wait": 0.0005, "forward": 0.0453, "backward": 0.05, "optimizer": 0.004, "other": 0.0002}
    record.summary["step_seconds"] = {"total": 0.1} | phases | {"callbacks": 0.0} | host
    work = {"forward": 0.0333, "backward": 0.061, "optimizer": 0.0042, "idle": 0.0015}
    record.summary["device_seconds"] = {"total": 0.1} | work
    for name, rate in (("median", 5120.0), ("low", 5110.0), ("high", 5130.0)):
        record.summary["images_per_second"][name] = rate
    record.summary["overall_images_per_second"] = 5120.0
    record.summary["trace_evidence"] |= {"step_seconds": 0.012, "device_busy": 1.0, "busy_seconds": 0.0985}
    record.summary["trace_evidence"] |= {"kernels_per_step": 100.0, "kernel_seconds_median": 5e-4}
    return record


def test_a_gpu_that_is_behind_its_host_is_not_starved() -> None:
    record = running_ahead()
    assert causes(record) == ["nothing"]
    record.summary["trace_evidence"]["busy_seconds"] = 0.012  # had it been idle after each of the recorded steps
    assert causes(record) == ["launch_bound"]


WAITED = {"data_wait": 0.0005, "forward": 0.006, "backward": 0.006, "optimizer": 0.003, "other": 0.0}
PLACES = ("transfer", "forward", "optimizer", "other")


def starved(record: Record, idle: float) -> Record:
    """Each step takes so much longer, in which the GPU has no work."""
    record.summary["trace_evidence"]["busy_seconds"] = 0.1 - idle
    record.summary["device_seconds"] |= {"idle": idle, "backward": max(0.0, 0.0625 - idle)}
    return record


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("idle", [0.0015, 0.1, 0.8])
def test_waiting_for_the_gpu_is_no_cause_wherever_a_host_does_it(place: str, idle: float) -> None:
    """It asks for one number a step: of the update, as a GradScaler does, or of a batch that is not pinned."""
    record = running_ahead(**WAITED | {place: 0.084})
    starved(record, 0.1 * idle)
    record.summary["trace_evidence"]["copies"] = [{"kind": "HtoD pageable", "seconds": 0.001}]
    if idle > 0.5:
        record.summary["trace_evidence"]["syncs"] = [{"name": "aten::item", "phase": place, "seconds": 0.08}]
    found = [one for one in diagnose(record) if one.cause != "nothing"]
    assert not [one for one in found if one.cause == "optimizer"]
    most = idle + (0.01 + 1e-9 if place == "transfer" else 1e-9)  # a copy takes 1 ms, which may go, too
    assert all(one.predicted_speedup.median <= 1 / (1 - most) for one in found)
    assert all((one.lost or 0.0) <= most for one in found)
    assert [one.cause for one in found] == {0.0015: [], 0.1: ["transfer"] * (place == "transfer")}.get(
        idle, ["transfer" if place == "transfer" else "synchronisation"]
    )


def progress_bar(record: Record) -> Record:
    """A callback that shows a number of the GPU's in each step."""
    hook = {"name": "TQDMProgressBar", "kind": "callback", "mean": 0.08, "longest": 0.081, "calls": 380}
    record.summary["callbacks"] = [hook]
    return record


def test_a_callback_that_waits_for_the_gpu_costs_what_that_idles() -> None:
    record = progress_bar(running_ahead(**WAITED | {"callbacks": 0.0845}))
    assert causes(record) == ["nothing"]
    (finding,) = diagnose(starved(record, 0.01))
    assert finding.title == "TQDMProgressBar takes 10% of each step"
    assert "The GPU works meanwhile; it idles for 10 ms of each step." in finding.evidence
    assert bound(finding.as_dict()).endswith("up to 1.11x as fast")
    record.summary["trace_evidence"]["syncs"] = [{"name": "aten::item", "phase": "callbacks", "seconds": 0.079}]
    (finding,) = diagnose(record)
    assert finding.title == "aten::item in TQDMProgressBar waits for the GPU for 79 ms of each step"
    assert bound(finding.as_dict()).endswith("up to 1.11x as fast")


def test_a_callback_that_starves_the_gpu_is_named() -> None:
    record = starved(progress_bar(running_ahead(**WAITED | {"callbacks": 0.0845})), 0.08)
    (finding,) = diagnose(record)
    assert finding.title == "TQDMProgressBar takes 80% of each step"
    assert bound(finding.as_dict()).endswith("up to 5.0x as fast")


def beside(record: Record, **means: float) -> Record:
    """Callbacks of these names, that take so many seconds of a step."""
    record.summary["callbacks"] = [
        {"name": name, "kind": "callback", "mean": mean, "longest": mean, "calls": 380} for name, mean in means.items()
    ]
    return record


def test_callbacks_share_the_time_in_which_the_gpu_idles() -> None:
    record = starved(running_ahead(**WAITED | {"callbacks": 0.0845}), 0.01)
    findings = diagnose(beside(record, First=0.042, Second=0.042))
    assert [one.title for one in findings] == [f"{name} takes 5% of each step" for name in ("First", "Second")]
    assert [one.lost for one in findings] == pytest.approx([0.05, 0.05])


@pytest.mark.parametrize(
    ("means", "where"),
    [
        ({"Average": 0.03, "Shown": 0.02}, "Average"),
        ({"Average": 0.03, "Shown": 0.026}, "callbacks"),  # which may be the one that waits
        ({"Average": 0.03, "Shown": 0.015, "Saved": 0.015}, "callbacks"),
        ({"Average": 0.02}, "callbacks"),
        ({}, "callbacks"),
    ],
)
def test_a_callback_is_named_where_only_it_is_long_enough_to_wait(means: dict[str, float], where: str) -> None:
    record = beside(starved(running_ahead(**WAITED | {"callbacks": 0.0845}), 0.05), **means)
    record.summary["trace_evidence"]["syncs"] = [{"name": "aten::item", "phase": "callbacks", "seconds": 0.025}]
    (finding,) = of("synchronisation", record)
    assert finding.title.startswith(f"aten::item in {where} waits for the GPU for 25 ms")


@pytest.mark.parametrize("is_traced", [True, False])
def test_only_a_trace_tells_when_the_gpu_idles_within_its_phases(is_traced: bool) -> None:
    """Without one, events count starving as work; outside of these phases they tell."""
    record = beside(running_ahead(**WAITED | {"forward": 0.05, "callbacks": 0.0345}), Audit=0.03)
    record.summary["garbage_seconds"] = 0.02
    if not is_traced:
        record.summary["trace_evidence"] = None
    step = step_of(record)
    assert step is not None
    parts = {part.cause: part.seconds for part in attribution(record, step)}
    bounded = 0.0015 * 3 / 5
    assert parts["garbage_collection"] == pytest.approx(bounded * 2 / 3 if is_traced else 0.02)
    assert parts["callback"] == pytest.approx(bounded if is_traced else 0.0015)


def test_an_update_that_starves_the_gpu_is_named() -> None:
    record = starved(running_ahead(**WAITED | {"optimizer": 0.06, "forward": 0.033}), 0.055)
    record.summary["device_seconds"] |= {"optimizer": 0.06, "idle": 0.001, "forward": 0.02, "backward": 0.019}
    record.summary["trace_evidence"]["kernel_seconds_median"] = 1.0  # so that launching is not the cause
    assert causes(record) == ["optimizer"]
    assert diagnose(record)[0].title == "The optimizer takes 60% of each step"


def test_long_steps_of_the_host_alone_are_no_cause() -> None:
    """It asks for the loss in one step of 50."""
    record = running_ahead()
    record.summary["uneven"] = {"steps": 7, "usual_seconds": 0.012, "long_seconds": 4.4, "extra_seconds": 0.088}
    record.summary["uneven"] |= {"garbage_seconds": 0.0, "phase": "forward"}
    assert causes(record) == ["nothing"]
    record.summary["trace_evidence"]["kernel_seconds_median"] = 1.0  # so that launching is not the cause
    for idle in (0.01, 0.08):
        (finding,) = diagnose(starved(record, idle))
        assert finding.cause == "uneven_steps"
        assert finding.lost == pytest.approx(min(idle, 0.0453) / 0.1)  # all of that phase
