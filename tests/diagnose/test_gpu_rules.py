"""The rules for a GPU, on constructed records (tests/diagnose/constructed) and on records that differ in what matters.

No run on a GPU was recorded: the records are written by hand, in the form of a run's and with figures that agree.
"""

from collections.abc import Callable
from typing import Any

import pytest

from strobe.diagnose.promise import bound
from strobe.diagnose.rank import diagnose
from strobe.diagnose.rules import Finding
from support.recorded import example, of, own_loop

RULES = ("synchronisation", "launch_bound", "transfer", "precision")
Change = Callable[[dict[str, Any], dict[str, Any]], object]


def changed(cause: str, change: Change = lambda *_: None) -> list[Finding]:
    """What its rule finds in the example of a cause, after a change to summary and configuration."""
    record = example(cause)
    change(record.summary, record.config)
    findings = of(cause, record)
    for finding in findings:
        assert finding.cause == cause
        assert 0 < finding.predicted_speedup.low <= finding.predicted_speedup.median <= finding.predicted_speedup.high
    return findings


def found(cause: str, change: Change = lambda *_: None) -> Finding:
    (finding,) = changed(cause, change)
    return finding


def facts(cause: str) -> tuple[dict[str, float], dict[str, Any]]:
    summary = example(cause).summary
    return summary["step_seconds"], summary["trace_evidence"]


def evidence(**changes: Any) -> Change:
    return lambda summary, _: summary["trace_evidence"].update(changes)


def rated(rate: float) -> Change:
    def change(summary: dict[str, Any], _: Any) -> None:
        for entry in summary["ceilings"]["alternatives"]:
            entry.update(rate=rate, interval=[0.98 * rate, 1.02 * rate])

    return change


def without_alternatives(summary: dict[str, Any], _: Any) -> None:
    summary["ceilings"]["alternatives"] = []


@pytest.mark.parametrize("cause", RULES)
def test_an_example_shows_its_cause_alone_and_only_on_a_gpu(cause: str) -> None:
    assert [rule for rule in RULES if of(rule, example(cause))] == [cause]
    assert not changed(cause, lambda summary, _: summary.update(accelerator="cpu"))
    assert not changed(cause, lambda summary, _: summary.pop("accelerator"))
    assert found(cause, lambda summary, _: summary.pop("device_seconds"))
    assert found(cause, lambda summary, _: summary.update(images_per_second=None))


def test_a_synchronisation_is_named_and_bounded_by_the_gpus_work() -> None:
    finding = found("synchronisation")
    step, trace = facts("synchronisation")
    busy = trace["device_busy"] * trace["step_seconds"]
    assert finding.predicted_speedup.median == pytest.approx(step["total"] / busy)
    assert finding.predicted_speedup.low < 1
    assert "aten::item in the forward pass" in finding.title
    assert "self.log" in finding.advice
    assert finding.overrides == ()


def test_a_synchronisation_without_much_work_of_the_gpu_costs_what_it_lasts() -> None:
    step, trace = facts("synchronisation")
    stall = sum(sync["seconds"] for sync in trace["syncs"] if sync["phase"] != "transfer")
    finding = found("synchronisation", evidence(device_busy=0.3))
    assert finding.predicted_speedup.median == pytest.approx(step["total"] / (step["total"] - stall))
    hidden = trace["step_seconds"] - step["total"]  # the host, slowed by recording, finds the GPU further on
    assert finding.predicted_speedup.high > step["total"] / (step["total"] - stall - hidden)


def syncs(**changes: Any) -> Change:
    def change(summary: dict[str, Any], _: Any) -> None:
        for sync in summary["trace_evidence"]["syncs"]:
            sync.update(changes)

    return change


def test_what_lightning_asks_of_all_ranks_in_each_batch_is_no_cause() -> None:
    def of_ranks(phase: str | None) -> Change:
        return lambda *given: (syncs(phase=phase)(*given), given[0].update(world_size=2))

    assert not changed("synchronisation", of_ranks(None))
    assert found("synchronisation", of_ranks("forward"))
    assert found("synchronisation", syncs(phase=None))


def slow_loader(summary: dict[str, Any], _: Any) -> None:
    rate = 512 / summary["step_seconds"]["total"]
    summary["ceilings"].update(loader=rate)
    summary["ceilings"]["intervals"].update(loader=[rate, rate])


def compiled(summary: dict[str, Any], config: dict[str, Any]) -> None:
    without_alternatives(summary, config)
    config["model"]["compile"] = True


def elsewhere(phase: str) -> Change:
    """Most of the passes' time is spent in another phase."""

    def change(summary: dict[str, Any], _: Any) -> None:
        seconds = summary["step_seconds"]
        for each in ("forward", "backward", "optimizer"):
            seconds[phase] += 0.7 * seconds[each]
            seconds[each] *= 0.3

    return change


def best_copies(_: Any, config: dict[str, Any]) -> None:
    config["engine"]["pin_memory"] = True
    config["loader"]["scale"] = "device"


def short_transfers(summary: dict[str, Any], _: Any) -> None:
    for key in ("step_seconds", "device_seconds"):
        summary[key]["transfer"] = 0.001


def capability(*value: Any) -> Change:
    """A GPU of this compute capability, with both kinds of half precision measured."""

    def change(summary: dict[str, Any], _: Any) -> None:
        summary["environment"]["gpu_capability"] = list(value) or None
        entry = summary["ceilings"]["alternatives"][0]
        summary["ceilings"]["alternatives"].append(entry | {"overrides": ["trainer.precision=16-mixed"]})

    return change


SILENT: dict[str, list[Change]] = {
    "synchronisation": [
        evidence(device_busy=0.97),  # the GPU has work all the time
        syncs(phase="transfer"),  # is another cause's
        syncs(seconds=1e-4),
        slow_loader,  # which hides it
    ],
    "launch_bound": [
        rated(7000.0),  # measured not to help
        compiled,
        elsewhere("data_wait"),
        elsewhere("callbacks"),
        evidence(device_busy=0.7),
        evidence(kernel_seconds_median=1e-4),  # long kernels
        evidence(device_busy=None),
        evidence(kernels_per_step=None),
    ],
    "transfer": [best_copies, short_transfers],
    "precision": [
        without_alternatives,
        rated(7000.0),
        lambda _, config: config["trainer"].update(precision="bf16-mixed"),
        capability(6, 1),  # no tensor cores
        capability(),
        capability("8", "0"),
    ],
}


@pytest.mark.parametrize(
    ("cause", "place"), [(cause, place) for cause in SILENT for place in range(len(SILENT[cause]))]
)
def test_a_rule_is_silent_without_its_symptom(cause: str, place: int) -> None:
    assert not changed(cause, SILENT[cause][place])


def test_a_call_outside_operators_is_named_too() -> None:
    bare = [{"name": "cudaDeviceSynchronize", "phase": None, "seconds": 0.02}]
    assert found("synchronisation", evidence(syncs=bare)).title.startswith("cudaDeviceSynchronize waits")


def test_a_cache_that_is_emptied_in_each_step_is_told() -> None:
    freed = [
        {"name": "cudaFree", "phase": None, "seconds": 0.02},
        {"name": "cudaMalloc", "phase": None, "seconds": 0.01},
    ]
    finding = found("synchronisation", evidence(syncs=freed))
    assert finding.title.startswith("cudaFree waits")
    assert "empty_cache" in finding.advice


def test_launch_bound_takes_the_best_measured_remedy() -> None:
    finding = found("launch_bound")
    assert finding.overrides == ("data.batch_size=1024",)
    step, _ = facts("launch_bound")
    assert finding.predicted_speedup.median == pytest.approx(13900 / (512 / step["total"]), rel=0.1)


def test_launch_bound_without_a_measured_remedy_is_bounded_by_the_gpus_work() -> None:
    finding = found("launch_bound", without_alternatives)
    assert finding.overrides == ("model.compile=true",)
    step, trace = facts("launch_bound")
    passes = step["forward"] + step["backward"] + step["optimizer"]
    starving = passes - trace["device_busy"] * trace["step_seconds"]
    assert finding.predicted_speedup.low < 1
    assert finding.predicted_speedup.high == pytest.approx(step["total"] / (step["total"] - starving), rel=0.1)


def test_copies_from_pageable_memory_in_float() -> None:
    finding = found("transfer")
    assert finding.overrides == ("engine.pin_memory=true", "loader.scale=device")
    step, trace = facts("transfer")
    copying = trace["copies"][0]["seconds"]
    least = trace["device_busy"] * trace["step_seconds"] - 0.75 * copying  # the GPU's work, with a quarter of the bytes
    expected = step["total"] / max(step["total"] - step["transfer"], least)
    assert finding.predicted_speedup.median == pytest.approx(expected)
    assert finding.predicted_speedup.low < 1


def test_copies_are_pinned_or_made_smaller_where_they_can_be() -> None:
    step, trace = facts("transfer")
    pin = found("transfer", lambda _, config: config["loader"].update(scale="device"))
    assert pin.overrides == ("engine.pin_memory=true",)
    busy = trace["device_busy"] * trace["step_seconds"]
    assert pin.predicted_speedup.median == pytest.approx(step["total"] / busy)  # as long as copies take as they do
    for form, spared in (("array", 0.75), ("tiles", 0.5)):  # float32 becomes uint8, and uint16
        smaller = found(
            "transfer", lambda _, c, form=form: (c["engine"].update(pin_memory=True), c["data"].update(form=form))
        )
        assert smaller.overrides == ("loader.scale=device",)
        expected = step["total"] / (step["total"] - spared * step["transfer"])
        assert smaller.predicted_speedup.median == pytest.approx(expected)


def test_pinning_that_is_left_to_the_engine_counts_by_the_copies() -> None:
    def pinned(summary: dict[str, Any], config: dict[str, Any]) -> None:
        config["engine"]["pin_memory"] = None
        for entry in summary["trace_evidence"]["copies"]:
            entry["kind"] = entry["kind"].replace("pageable", "pinned")

    assert found("transfer", pinned).overrides == ("loader.scale=device",)
    left = found("transfer", lambda _, config: config["engine"].update(pin_memory=None))
    assert "engine.pin_memory=true" in left.overrides


def test_mixed_precision_is_proposed_as_measured() -> None:
    finding = found("precision")
    assert finding.overrides == ("trainer.precision=bf16-mixed",)
    step, _ = facts("precision")
    assert finding.predicted_speedup.median == pytest.approx(12900 / (512 / step["total"]), rel=0.1)
    assert found("precision", capability(7, 0)).overrides == ("trainer.precision=16-mixed",)  # before Ampere


def test_a_processor_can_have_mixed_precision_too() -> None:
    def on_cpu(summary: dict[str, Any], _: Any) -> None:
        summary.update(accelerator="cpu", device_seconds=None, trace_evidence=None)
        summary["environment"].update(gpu_capability=None, cpu_bfloat16=True)

    finding = found("precision", on_cpu)
    assert finding.overrides == ("trainer.precision=bf16-mixed",)
    assert finding.title == "Mixed precision is faster on this processor"


@pytest.mark.parametrize("used", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_sixteen_bits_that_the_processor_emulates_are_left(used: str) -> None:
    def emulated(summary: dict[str, Any], config: dict[str, Any]) -> None:
        summary.update(accelerator="cpu", device_seconds=None, trace_evidence=None, precision=used)
        summary["environment"].update(gpu_capability=None, cpu_bfloat16=False)
        config["trainer"]["precision"] = used
        for entry in summary["ceilings"]["alternatives"]:
            if entry["overrides"] == ["trainer.precision=bf16-mixed"]:
                entry["overrides"] = ["trainer.precision=32-true"]

    finding = found("precision", emulated)
    assert finding.overrides == ("trainer.precision=32-true",)
    assert finding.title == "Single precision is faster on this processor"

    def unmeasured(summary: dict[str, Any], config: dict[str, Any]) -> None:
        emulated(summary, config)
        without_alternatives(summary, config)

    finding = found("precision", unmeasured)
    assert finding.title == f"This processor only emulates {used}"
    assert "training would be up to" in bound(finding.as_dict() | {"overrides": []})  # all of computing were gone


def test_the_type_of_operations_is_measured_rather_than_that_of_weights_bounded() -> None:
    def double(summary: dict[str, Any], config: dict[str, Any]) -> None:
        summary.update(accelerator="cpu", device_seconds=None, trace_evidence=None, weights="float64", ceilings=None)

    def measured(summary: dict[str, Any], config: dict[str, Any]) -> None:
        double(summary, config)
        summary["dtype"] = {"forward": 0.3, "backward": 0.3, "dtype": "float64", "tried": 0.9}

    def hardly(summary: dict[str, Any], config: dict[str, Any]) -> None:
        double(summary, config)
        summary["dtype"] = {"tried": 0.3}

    for known in (double, hardly):
        assert (finding := found("precision", known)).title == "The weights are in double precision"
        assert bound(finding.as_dict() | {"overrides": []}).endswith("perhaps more")  # half of it is gone
    assert not changed("precision", measured)
    assert changed("dtype", measured)


def seen_in(library: str, share: float) -> Change:
    def change(summary: dict[str, Any], _: Any) -> None:
        line = {"phase": "forward", "file": "train.py", "line": 9, "function": "step", "library": library}
        summary["lines"] = [line | {"share": share, "python": share}]

    return change


@pytest.mark.parametrize("cause", ["synchronisation", "launch_bound", "transfer"])
def test_what_an_example_shows_comes_first_in_a_loop_too(cause: str) -> None:
    record = example(cause)
    own_loop(record.summary, record.config)
    first = diagnose(record)[0]
    assert first.cause == cause
    assert bound(first.as_dict())
    assert "self.log" not in first.advice  # which only a LightningModule has


def test_a_loop_whose_model_is_unknown_launches_too_many_kernels() -> None:
    finding = found("launch_bound", own_loop)
    assert finding.overrides == ()
    assert "torch.compile" in finding.advice
    assert "larger batches" in finding.advice


@pytest.mark.parametrize(("cause", "library"), [("library_call", "sklearn"), ("python_code", "")])
def test_a_host_that_computes_itself_is_not_slow_at_launching(cause: str, library: str) -> None:
    record = example("launch_bound")
    for change in (own_loop, elsewhere("forward"), seen_in(library, 0.95)):
        change(record.summary, record.config)
    assert not of("launch_bound", record)
    (finding,) = of(cause, record)
    assert "forward" in finding.title
    record.summary["trace_evidence"]["device_busy"] = 0.97  # it costs nothing while the GPU has work
    assert not of(cause, record)


def test_a_loops_copies_from_pageable_memory_are_those_of_its_trace() -> None:
    finding = found("transfer", own_loop)
    assert "pin_memory()" in finding.advice
    assert "non_blocking" in finding.advice

    def waiting(summary: dict[str, Any], config: dict[str, Any]) -> None:
        own_loop(summary, config)
        trace = summary["trace_evidence"]
        trace["syncs"] = [
            {"name": "aten::to", "phase": "forward", "seconds": trace["copies"][0]["seconds"], "calls": 2}
        ]
        trace["device_busy"] = 0.5

    assert found("transfer", waiting)
    record = example("transfer")
    waiting(record.summary, record.config)
    assert not of("synchronisation", record)  # the wait for that copy

    def loading(summary: dict[str, Any], config: dict[str, Any]) -> None:
        own_loop(summary, config)
        config["engine"] = {"num_workers": 4, "pin_memory": False}

    assert found("transfer", loading).overrides == ("engine.pin_memory=true",)

    def pinned(summary: dict[str, Any], config: dict[str, Any]) -> None:
        own_loop(summary, config)
        for entry in summary["trace_evidence"]["copies"]:
            entry["kind"] = entry["kind"].replace("pageable", "pinned")

    assert not changed("transfer", pinned)


def products(share: float, *gpu: int) -> Change:
    def change(summary: dict[str, Any], config: dict[str, Any]) -> None:
        own_loop(summary, config)
        summary["trace_evidence"]["float32_product_share"] = share
        summary["environment"]["gpu_capability"] = list(gpu)

    return change


def test_float32_products_without_tensor_cores_are_bounded_by_their_time() -> None:
    finding = found("precision", products(0.8, 9, 0))
    assert finding.overrides == ("matmul_precision=high",)
    step, trace = facts("precision")
    rest = step["total"] - 0.8 * trace["device_busy"] * trace["step_seconds"]
    assert finding.predicted_speedup.low == 1
    assert finding.predicted_speedup.high == pytest.approx(step["total"] / rest, rel=0.25)  # and its noise
    assert not changed("precision", products(0.01, 9, 0))
    assert not changed("precision", products(0.8, 7, 0))  # Volta has no TensorFloat-32
    assert not changed("precision", products(0.8))
