"""Alternatives are measured where the record shows the symptom, and only those that the run can have."""

from typing import Any

import pytest

from strobe.diagnose.candidates import MOST, candidates
from strobe.records.run import Record
from support.recorded import CAUSES, example


def proposed(record: Record) -> list[str]:
    return [override for candidate in candidates(record) for override in candidate.overrides]


def keys(record: Record) -> set[str]:
    return {override.partition("=")[0] for override in proposed(record)}


@pytest.mark.parametrize("cause", CAUSES)
def test_they_are_few_different_and_change_something(cause: str) -> None:
    record = example(cause)
    found = candidates(record)
    assert len(set(found)) == len(found) <= MOST
    for candidate in found:
        assert candidate.side in ("loader", "model")
        for override in candidate.overrides:
            key, _, value = override.partition("=")
            assert record.has(key)
            assert str(record.setting(key)).lower() != value


def test_waiting_calls_for_loaders_and_workers() -> None:
    record = example("loader")
    found = candidates(record)
    assert {candidate.side for candidate in found} == {"loader"}  # 61% waiting: computing is not measured
    assert {"loader=rasterio", "loader=tifffile"} <= set(proposed(record))
    assert "loader=skimage" not in proposed(record)  # is measured already
    assert "engine.num_workers" in keys(record)
    assert not {"loader", "engine.num_workers"} & keys(example("nothing"))


def test_waits_for_new_workers_call_for_no_other_loader() -> None:
    assert "loader" not in keys(example("workers_restart"))


def test_a_loaders_own_switches_are_tried_where_it_has_them() -> None:
    record = example("loader", config__loader={"batched": False, "scale": "numpy"})
    assert {"loader.batched=true", "loader.scale=device"} <= set(proposed(record))
    record = example("loader", config__loader={"batched": True, "scale": "device"})
    assert not {"loader.batched", "loader.scale"} & keys(record)


@pytest.mark.parametrize(
    "limits",
    [
        {"summary__environment__shm_free_bytes": 100_000},
        {"summary__environment__usable_cores": None},
    ],
)
def test_no_workers_where_none_fit(limits: dict[str, Any]) -> None:
    assert "engine.num_workers" in keys(example("loader"))
    assert "engine.num_workers" not in keys(example("loader", **limits))


def test_workers_are_counted_over_the_ranks_of_the_host() -> None:
    def most(devices: int) -> int:
        record = example("loader", summary__devices=devices, summary__ceilings__model=5000.0)
        record.summary["ceilings"]["cpu_seconds"]["loader"] = 1 / 280  # a worker takes a whole core
        record.summary["step_seconds"] |= {"total": 0.13, "data_wait": 0.12}  # and many are wanted
        counts = [int(text.partition("=")[2]) for text in proposed(record) if text.startswith("engine.num_workers")]
        return max(counts)

    assert most(1) == 8
    assert most(2) == 4


def test_fewer_workers_are_tried_where_cores_are_short() -> None:
    assert proposed(example("workers_hurt"))[0] == "engine.num_workers=0"
    assert "engine.num_workers" not in keys(example("workers_hurt", summary__environment__usable_cores=16))


def test_batches_stay_a_fraction_of_the_data() -> None:
    assert {"data.batch_size=64", "data.batch_size=128"} <= set(proposed(example("nothing")))
    assert "data.batch_size=128" not in proposed(example("nothing", summary__train_images=400))
    assert "data.batch_size" not in keys(example("nothing", summary__train_images=100))


def test_the_fused_optimizer_is_tried_where_the_update_shows() -> None:
    assert proposed(example("optimizer"))[0] == "model.fused=true"
    assert "model.fused" not in keys(example("optimizer", config__model__fused=True))
    assert "model.fused" not in keys(example("nothing"))


def test_fewer_threads_are_tried_where_they_exceed_the_cores() -> None:
    assert "threads=4" in proposed(example("threads"))
    assert "threads" not in keys(example("threads", summary__environment__usable_cores=16))


@pytest.mark.parametrize(
    ("capability", "precision"), [([8, 0], "bf16-mixed"), ([7, 5], "16-mixed"), ([6, 1], None), (None, None)]
)
def test_mixed_precision_is_tried_on_tensor_cores(capability: Any, precision: str | None) -> None:
    record = example("nothing", summary__environment__gpu_capability=capability, summary__accelerator="cuda")
    assert [text.partition("=")[2] for text in proposed(record) if "precision" in text] == [precision] * bool(precision)


@pytest.mark.parametrize("able", [True, False, None])
def test_mixed_precision_is_tried_on_a_processor_that_multiplies_in_it(able: bool | None) -> None:
    record = example("nothing", summary__environment__cpu_bfloat16=able, summary__accelerator="cpu")
    assert ("trainer.precision=bf16-mixed" in proposed(record)) == bool(able)


def test_a_run_without_a_measured_step_has_none() -> None:
    assert candidates(Record({"schema": 1, "status": "failed"})) == []
    assert candidates(example("loader", summary__step_seconds={"total": None})) == []
    assert candidates(example("loader", summary__status="failed"))  # it made steps before
