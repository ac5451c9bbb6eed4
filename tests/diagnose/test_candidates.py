"""Alternatives are measured where the record shows the symptom, and only those that the run can have."""

from typing import Any

import pytest

from strobe.diagnose.candidates import MOST, Candidate, candidates
from strobe.diagnose.predict import step_of
from strobe.diagnose.symptoms import worker_limit
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
    assert "loader" not in keys(example("workers_restart"))  # it waits for new workers
    record = example("loader", config__loader={"batched": False, "scale": "numpy"})  # switches of its own
    assert {"loader.batched=true", "loader.scale=device"} <= set(proposed(record))
    record = example("loader", config__loader={"batched": True, "scale": "device"})
    assert not {"loader.batched", "loader.scale"} & keys(record)


@pytest.mark.parametrize(
    ("cause", "key", "changes"),
    [
        ("loader", "engine.num_workers", {"summary__environment__shm_free_bytes": 100_000}),  # no room for batches
        ("loader", "engine.num_workers", {"summary__environment__usable_cores": None}),
        ("workers_hurt", "engine.num_workers", {"summary__environment__usable_cores": 16}),  # cores for all
        ("nothing", "data.batch_size", {"summary__train_images": 100}),  # an epoch would hold too few
        ("optimizer", "model.fused", {"config__model__fused": True}),
        ("threads", "threads", {"summary__environment__usable_cores": 16}),
    ],
)
def test_what_cannot_help_is_not_measured(cause: str, key: str, changes: dict[str, Any]) -> None:
    assert key in keys(example(cause))
    assert key not in keys(example(cause, **changes))


def test_workers_are_counted_over_the_ranks_of_the_host() -> None:
    def most(devices: int) -> int:
        record = example("loader", summary__devices=devices, summary__ceilings__model=5000.0)
        record.summary["ceilings"]["cpu_seconds"]["loader"] = 1 / 280  # a worker takes a whole core
        record.summary["step_seconds"] |= {"total": 0.13, "data_wait": 0.12}  # and many are wanted
        counts = [int(text.partition("=")[2]) for text in proposed(record) if text.startswith("engine.num_workers")]
        return max(counts)

    assert most(1) == 8
    assert most(2) == 4


def test_workers_that_wait_for_each_other_have_no_room_for_more() -> None:
    """They look idle; one of them alone computes all the time."""
    record = example("loader", summary__num_workers=2, summary__environment__usable_cores=2)
    record.summary["ceilings"]["cpu_seconds"]["loader"] = 0.5 / 280
    record.summary["ceilings"]["loading"] |= {"cores": 0.2}
    step = step_of(record)
    assert step is not None
    assert (found := worker_limit(record, step)) is not None
    record.summary["ceilings"]["loading"] |= {"cores": 1.0}
    assert (alone := worker_limit(record, step)) is not None
    assert alone.workers == 2 < found.workers


def test_what_the_symptom_calls_for_comes_first() -> None:
    assert proposed(example("workers_hurt"))[0] == "engine.num_workers=0"
    assert proposed(example("optimizer"))[0] == "model.fused=true"
    assert "model.fused" not in keys(example("nothing"))
    assert "threads=4" in proposed(example("threads"))
    assert {"data.batch_size=64", "data.batch_size=128"} <= set(proposed(example("nothing")))
    assert "data.batch_size=128" not in proposed(example("nothing", summary__train_images=400))
    assert "threads=4" in proposed(example("nothing", summary__threads=1, summary__environment__usable_cores=4))
    assert "trainer.precision=32-true" in proposed(example("nothing", config__trainer__precision="64-true"))
    for weights, mixed in (("float32", True), ("float64", False)):
        record = example("nothing", summary__environment__cpu_bfloat16=True)
        record.summary["weights"] = weights
        assert ("trainer.precision" in keys(record)) == mixed


def test_a_larger_batch_leaves_validation_its_place_in_an_epoch() -> None:
    ten = {"summary__batches_per_epoch": 40, "config__trainer__val_check_interval": 10}
    assert {"data.batch_size=64", "data.batch_size=128"} <= set(proposed(example("nothing", **ten)))
    assert "data.batch_size=128" not in proposed(
        example("nothing", **ten | {"config__trainer__val_check_interval": 20})
    )


def test_a_script_keeps_a_few_batches_of_an_epoch() -> None:
    script = {"summary__train_images": None, "summary__batches_per_epoch": 8}
    assert "data.batch_size=64" in proposed(example("nothing", **script))
    assert "data.batch_size=128" not in proposed(example("nothing", **script))


@pytest.mark.parametrize(
    ("accelerator", "hardware", "precision"),
    [
        ("cuda", {"gpu_capability": [8, 0]}, ["bf16-mixed"]),
        ("cuda", {"gpu_capability": [7, 5]}, ["16-mixed"]),
        ("cuda", {"gpu_capability": [6, 1]}, []),  # no tensor cores
        ("cuda", {"gpu_capability": None}, []),
        ("cpu", {"cpu_bfloat16": True}, ["bf16-mixed"]),
        ("cpu", {"cpu_bfloat16": False}, []),
        ("cpu", {}, []),
    ],
)
def test_mixed_precision_is_tried_where_the_hardware_multiplies_in_it(
    accelerator: str, hardware: dict[str, Any], precision: list[str]
) -> None:
    record = example("nothing", summary__accelerator=accelerator)
    record.summary["environment"].update(hardware)
    assert [text.partition("=")[2] for text in proposed(record) if "precision" in text] == precision


@pytest.mark.parametrize(("accelerator", "tried"), [("cuda", True), ("cpu", False)])
def test_compilation_is_tried_on_a_gpu_and_not_beside_one(accelerator: str, tried: bool) -> None:
    record = example("nothing", summary__accelerator=accelerator)
    record.summary["environment"]["gpu_capability"], record.config["model"]["compile"] = [8, 0], False
    assert ("model.compile=true" in proposed(record)) is tried


def test_a_run_without_a_measured_step_has_none() -> None:
    assert candidates(Record({"schema": 1, "status": "failed"})) == []
    assert candidates(example("loader", summary__step_seconds={"total": None})) == []
    assert candidates(example("loader", summary__status="failed"))  # it made steps before


def test_images_that_are_enlarged_are_measured_at_the_size_that_they_have() -> None:
    assert Candidate("model", ("data.size=64",)) in candidates(example("upsampled"))
    record = example("upsampled", summary__image_size__stored=[100, 120])
    assert "data.size=128" in proposed(record)
    assert "data.size" not in keys(example("upsampled", summary__image_size__stored=[200, 180]))
