"""The rules for a GPU, each on a record in its example's form, and on records that differ in what matters."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strobe.diagnose.finding import Finding
from strobe.diagnose.rules import gpu
from strobe.records.run import Record

EXAMPLES = Path(__file__).parent / "examples"
RULES = {rule.__name__: rule for rule in (gpu.synchronisation, gpu.launch_bound, gpu.transfer, gpu.precision)}


def changed(cause: str, change: Callable[[dict[str, Any], dict[str, Any]], object] = lambda *_: None) -> Finding | None:
    """What its rule finds in the example of a cause, after a change to summary and configuration."""
    example = json.loads((EXAMPLES / f"{cause}.json").read_text())
    change(example["summary"], example["config"])
    before = copy.deepcopy(example)
    finding = RULES[cause](Record(example["summary"], example["config"]))
    assert example == before  # rules are pure
    if finding is not None:
        speedup = finding.predicted_speedup
        assert 0 < speedup.low <= speedup.median <= speedup.high
    return finding


def found(cause: str, change: Callable[[dict[str, Any], dict[str, Any]], object] = lambda *_: None) -> Finding:
    finding = changed(cause, change)
    assert finding is not None
    assert finding.cause == cause
    return finding


def facts(cause: str) -> tuple[dict[str, float], dict[str, Any]]:
    summary = json.loads((EXAMPLES / f"{cause}.json").read_text())["summary"]
    return summary["step_seconds"], summary["trace_evidence"]


@pytest.mark.parametrize("example", RULES)
def test_an_example_shows_its_cause_alone(example: str) -> None:
    content = json.loads((EXAMPLES / f"{example}.json").read_text())
    record = Record(content["summary"], content["config"])
    assert [cause for cause, rule in RULES.items() if rule(record)] == [example]


def missing(key: str) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda summary, _: summary.pop(key)


def null(key: str) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda summary, _: summary.update({key: None})


@pytest.mark.parametrize("cause", RULES)
def test_nothing_is_found_on_a_cpu_or_without_a_measured_step(cause: str) -> None:
    assert changed(cause, lambda summary, _: summary.update(accelerator="cpu")) is None
    assert changed(cause, missing("accelerator")) is None
    assert changed(cause, null("step_seconds")) is None
    assert changed(cause, lambda summary, config: (summary.clear(), config.clear())) is None


@pytest.mark.parametrize("change", [missing, null])
@pytest.mark.parametrize("cause", RULES)
def test_what_is_missing_is_lived_with(cause: str, change: Any) -> None:
    for key in json.loads((EXAMPLES / f"{cause}.json").read_text())["summary"]:
        changed(cause, change(key))
    found(cause, change("device_seconds"))
    found(cause, change("images_per_second"))


def test_a_synchronisation_is_named_and_bounded_by_the_gpus_work() -> None:
    finding = found("synchronisation")
    step, trace = facts("synchronisation")
    busy = trace["device_busy"] * trace["step_seconds"]
    stall = sum(sync["seconds"] for sync in trace["syncs"] if sync["phase"] != "transfer")
    assert busy > step["total"] - stall
    assert finding.predicted_speedup.median == pytest.approx(step["total"] / busy)
    assert finding.predicted_speedup.low < 1
    assert "aten::item in forward" in finding.title
    assert "self.log" in finding.advice
    assert finding.overrides == ()


def test_a_synchronisation_without_much_work_of_the_gpu_costs_what_it_lasts() -> None:
    step, trace = facts("synchronisation")
    stall = sum(sync["seconds"] for sync in trace["syncs"] if sync["phase"] != "transfer")
    finding = found("synchronisation", lambda summary, _: summary["trace_evidence"].update(device_busy=0.3))
    assert finding.predicted_speedup.median == pytest.approx(step["total"] / (step["total"] - stall))
    hidden = trace["step_seconds"] - step["total"]  # the host, slowed by recording, finds the GPU further on
    assert finding.predicted_speedup.high > step["total"] / (step["total"] - stall - hidden)


def test_waiting_for_a_busy_gpu_is_no_finding() -> None:
    assert changed("synchronisation", lambda summary, _: summary["trace_evidence"].update(device_busy=0.97)) is None


def test_synchronisations_of_copies_to_the_gpu_and_short_ones_are_no_finding() -> None:
    def move(summary: dict[str, Any], _: Any) -> None:
        for sync in summary["trace_evidence"]["syncs"]:
            sync["phase"] = "transfer"

    def shorten(summary: dict[str, Any], _: Any) -> None:
        for sync in summary["trace_evidence"]["syncs"]:
            sync["seconds"] /= 10

    assert changed("synchronisation", move) is None
    assert changed("synchronisation", shorten) is None


def test_a_synchronisation_that_a_slow_loader_hides_is_no_finding() -> None:
    def slow(summary: dict[str, Any], _: Any) -> None:
        rate = 512 / summary["step_seconds"]["total"]
        summary["ceilings"].update(loader=rate)
        summary["ceilings"]["intervals"].update(loader=[rate, rate])

    assert changed("synchronisation", slow) is None


def test_a_call_outside_operators_is_named_too() -> None:
    def bare(summary: dict[str, Any], _: Any) -> None:
        summary["trace_evidence"]["syncs"] = [{"name": "cudaDeviceSynchronize", "phase": None, "seconds": 0.02}]

    assert found("synchronisation", bare).title.startswith("cudaDeviceSynchronize waits")


def test_launch_bound_takes_the_best_measured_remedy() -> None:
    finding = found("launch_bound")
    assert finding.overrides == ("data.batch_size=1024",)
    step, _ = facts("launch_bound")
    assert finding.predicted_speedup.median == pytest.approx(13900 / (512 / step["total"]), rel=0.1)


def without_alternatives(summary: dict[str, Any], _: Any) -> None:
    summary["ceilings"]["alternatives"] = []


def test_launch_bound_without_a_measured_remedy_is_bounded_by_the_gpus_work() -> None:
    finding = found("launch_bound", without_alternatives)
    assert finding.overrides == ("model.compile=true",)
    step, trace = facts("launch_bound")
    passes = step["forward"] + step["backward"] + step["optimizer"]
    starving = passes - trace["device_busy"] * trace["step_seconds"]
    speedup = finding.predicted_speedup
    assert speedup.low < 1
    assert speedup.median == pytest.approx(step["total"] / (step["total"] - starving / 2))
    assert speedup.high == pytest.approx(step["total"] / (step["total"] - starving), rel=0.1)


def test_what_was_measured_not_to_help_is_not_proposed() -> None:
    def slow(summary: dict[str, Any], _: Any) -> None:
        for entry in summary["ceilings"]["alternatives"]:
            entry.update(rate=7000.0, interval=[6900.0, 7100.0])

    assert changed("launch_bound", slow) is None

    def compiled(summary: dict[str, Any], config: dict[str, Any]) -> None:
        without_alternatives(summary, config)
        config["model"]["compile"] = True

    assert changed("launch_bound", compiled) is None


@pytest.mark.parametrize(
    "evidence",
    [{"device_busy": 0.7}, {"kernel_seconds_median": 1e-4}, {"device_busy": None}, {"kernels_per_step": None}],
)
def test_a_busy_gpu_or_long_kernels_are_not_launch_bound(evidence: dict[str, Any]) -> None:
    assert changed("launch_bound", lambda summary, _: summary["trace_evidence"].update(evidence)) is None


def test_waiting_for_data_or_a_callback_is_not_launch_bound() -> None:
    def move(phase: str) -> Callable[[dict[str, Any], dict[str, Any]], object]:
        def change(summary: dict[str, Any], _: Any) -> None:
            seconds = summary["step_seconds"]
            for each in ("forward", "backward", "optimizer"):
                seconds[phase] += 0.7 * seconds[each]
                seconds[each] *= 0.3

        return change

    assert changed("launch_bound", move("data_wait")) is None
    assert changed("launch_bound", move("callbacks")) is None


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
    busy = trace["device_busy"] * trace["step_seconds"]
    pin = found("transfer", lambda _, config: config["loader"].update(scale="device"))
    assert pin.overrides == ("engine.pin_memory=true",)
    assert pin.predicted_speedup.median == pytest.approx(step["total"] / busy)  # as long as copies take as they do

    smaller = found("transfer", lambda _, config: config["engine"].update(pin_memory=True))
    assert smaller.overrides == ("loader.scale=device",)
    expected = step["total"] / (step["total"] - 0.75 * step["transfer"])
    assert smaller.predicted_speedup.median == pytest.approx(expected)

    tiles = found("transfer", lambda _, c: (c["engine"].update(pin_memory=True), c["data"].update(form="tiles")))
    assert tiles.predicted_speedup.median == pytest.approx(step["total"] / (step["total"] - 0.5 * step["transfer"]))

    def best(_: Any, config: dict[str, Any]) -> None:
        config["engine"]["pin_memory"] = True
        config["loader"]["scale"] = "device"

    assert changed("transfer", best) is None


def test_pinning_that_is_left_to_the_engine_counts_by_the_copies() -> None:
    def pinned(summary: dict[str, Any], config: dict[str, Any]) -> None:
        config["engine"]["pin_memory"] = None
        for entry in summary["trace_evidence"]["copies"]:
            entry["kind"] = entry["kind"].replace("pageable", "pinned")

    assert found("transfer", pinned).overrides == ("loader.scale=device",)
    left = found("transfer", lambda _, config: config["engine"].update(pin_memory=None))
    assert "engine.pin_memory=true" in left.overrides


def test_short_transfers_are_no_finding() -> None:
    def shorten(summary: dict[str, Any], _: Any) -> None:
        for key in ("step_seconds", "device_seconds"):
            summary[key]["transfer"] = 0.001

    assert changed("transfer", shorten) is None


def test_mixed_precision_is_proposed_as_measured() -> None:
    finding = found("precision")
    assert finding.overrides == ("trainer.precision=bf16-mixed",)
    step, _ = facts("precision")
    assert finding.predicted_speedup.median == pytest.approx(12900 / (512 / step["total"]), rel=0.1)


@pytest.mark.parametrize("capability", [[6, 1], None, [], ["8", "0"]])
def test_hardware_without_tensor_cores_keeps_full_precision(capability: Any) -> None:
    def other(summary: dict[str, Any], _: Any) -> None:
        summary["environment"]["gpu_capability"] = capability
        entry = summary["ceilings"]["alternatives"][0]
        summary["ceilings"]["alternatives"].append(entry | {"overrides": ["trainer.precision=16-mixed"]})

    assert changed("precision", other) is None


def test_a_processor_can_have_it_too() -> None:
    def on_cpu(summary: dict[str, Any], _: Any) -> None:
        summary.update(accelerator="cpu", device_seconds=None, trace_evidence=None)
        summary["environment"].update(gpu_capability=None, cpu_bfloat16=True)

    finding = found("precision", on_cpu)
    assert finding.overrides == ("trainer.precision=bf16-mixed",)
    assert finding.title == "Mixed precision is faster on this processor"


def test_before_ampere_it_is_half_precision() -> None:
    def volta(summary: dict[str, Any], _: Any) -> None:
        summary["environment"]["gpu_capability"] = [7, 0]
        summary["ceilings"]["alternatives"][0]["overrides"] = ["trainer.precision=16-mixed"]

    assert found("precision", volta).overrides == ("trainer.precision=16-mixed",)
    assert changed("precision", lambda s, _: s["environment"].update(gpu_capability=[7, 5])) is None


def test_mixed_precision_in_use_not_measured_or_not_faster_is_no_finding() -> None:
    assert changed("precision", lambda summary, _: summary.update(precision="bf16-mixed")) is None
    assert changed("precision", without_alternatives) is None
    assert changed("precision", lambda s, _: s["ceilings"]["alternatives"][0].update(rate=7000.0)) is None
