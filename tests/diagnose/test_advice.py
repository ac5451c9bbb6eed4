"""What rules advise: the overrides, their values, and what they say of them."""

from typing import Any

import pytest

from strobe.callbacks.columns import GPU_CHECK
from strobe.diagnose.looks import at_line
from strobe.diagnose.promise import bound, most_of
from strobe.diagnose.rank import diagnose
from support.recorded import example, of


def prescribed(cause: str, **changes: Any) -> list[str]:
    """The overrides of the only finding of a rule; those that it has not prescribed are none."""
    return [" ".join(finding.overrides) for finding in of(cause, example(cause, **changes))]


CORES, SHM = "summary__environment__usable_cores", "summary__environment__shm_free_bytes"
RATE, INTERVALS = "summary__ceilings__loader", "summary__ceilings__intervals"
EPOCH, UPDATES = "summary__batches_per_epoch", "summary__updates"
INTERVAL, EPOCHS = "config__trainer__val_check_interval", "config__trainer__check_val_every_n_epoch"
LONGEST, SAVES = "config__trainer__max_epochs", "config__checkpoint__every_n_epochs"


@pytest.mark.parametrize(
    ("cause", "changes", "overrides"),
    [
        ("loader", {CORES: 16}, "engine.num_workers=2"),
        ("loader", {}, "loader=tifffile"),  # about as fast: two workers would take cores that computing uses
        ("loader", {CORES: 1}, "loader=tifffile"),  # two workers have no cores
        ("loader", {SHM: 1_000_000}, "loader=tifffile"),  # nor room for their batches
        (
            "loader",  # workers that are fast on the whole, and uneven, get deeper queues
            {"summary__num_workers": 2, RATE: 5000.0, INTERVALS: {"loader": [4900.0, 5100.0], "model": [429.0, 431.0]}},
            "engine.prefetch_factor=4",
        ),
        ("checkpoint", {EPOCH: 45}, "checkpoint.every_n_steps=null"),
        ("checkpoint", {EPOCH: 100_000}, "checkpoint.every_n_steps=50"),
        ("checkpoint", {EPOCH: 90, UPDATES: 1.0}, "checkpoint.every_n_steps=50"),
        ("checkpoint", {EPOCH: 90, UPDATES: 0.5}, "checkpoint.every_n_steps=20"),  # counted in updates
        ("logging", {"config__trainer__log_every_n_steps": 10}, ""),  # and it logs in each step all the same
        *[
            ("validation", {INTERVAL: interval, EPOCHS: epochs, LONGEST: longest}, overrides)
            for interval, epochs, longest, overrides in [
                (5, 1, 5, "trainer.val_check_interval=null trainer.check_val_every_n_epoch=2"),
                (0.01, 1, 5, "trainer.val_check_interval=null"),
                (None, 1, 100, "trainer.check_val_every_n_epoch=11"),
                (None, 2, 100, "trainer.check_val_every_n_epoch=22"),
                (None, 1, 5, "trainer.check_val_every_n_epoch=5"),
                (None, 1, 1, ""),
                (50, None, 5, "trainer.val_check_interval=550"),
            ]
        ],
        *[
            ("epoch_checkpoint", {EPOCHS: validated, LONGEST: longest}, f"checkpoint.every_n_epochs={every}")
            for validated, longest, every in [(1, 100, 5), (10, 100, 10), (4, 100, 8), (10, 5, 5), (1, 2, 2)]
        ],
        ("epoch_checkpoint", {LONGEST: 1}, None),  # they are saved once
        ("epoch_checkpoint", {LONGEST: 9, SAVES: 9}, None),
        ("epoch_checkpoint", {"summary__between_seconds__checkpoints": 0.001}, None),
    ],
)
def test_a_rule_prescribes_what_fits_the_run(cause: str, changes: dict[str, Any], overrides: str | None) -> None:
    assert prescribed(cause, **changes) == ([] if overrides is None else [overrides])


def test_smaller_images_gain_to_loading_too_where_that_was_measured() -> None:
    record = example("upsampled", summary__num_workers=0)
    record.summary["step_seconds"] |= {"data_wait": 0.0326, "total": 0.1071}
    record.summary["ceilings"]["loader"] = 1000.0
    alone = of("upsampled", record)[0].predicted_speedup
    loads = {"overrides": ["data.size=64"], "side": "loader", "rate": 4000.0, "interval": [3900.0, 4100.0]}
    record.summary["ceilings"]["alternatives"].append(loads)
    assert of("upsampled", record)[0].predicted_speedup.median > 1.3 * alone.median


def test_images_enlarged_in_the_network_have_no_override() -> None:
    record = example("upsampled", summary__ceilings__alternatives=[])
    assert of("upsampled", record)[0].overrides == ("data.size=64",)  # not measured
    assert of("upsampled", record)[0].predicted_speedup.low == 1.0
    record.summary["image_size"]["given"] = [64, 64]
    finding = of("upsampled", record)[0]
    assert finding.overrides == ()
    assert "inside the network" in finding.advice
    assert "stored at 64x64 pixels, but the network computes on 224x224" in finding.evidence


def test_the_knee_not_the_largest_batch() -> None:
    record = example("small_batch")
    entries = record.summary["ceilings"]["alternatives"]
    entries.append(entries[0] | {"overrides": ["data.batch_size=64"], "rate": 440.0, "interval": [431.0, 449.0]})
    assert of("small_batch", record)[0].overrides == ("data.batch_size=32",)


def test_larger_batches_take_the_place_of_accumulation() -> None:
    plain = of("small_batch", example("small_batch"))[0]
    record = example("small_batch", config__trainer__accumulate_grad_batches=8)
    factor = int(plain.overrides[0].partition("=")[2]) // 8
    finding = of("small_batch", record)[0]
    assert finding.overrides == (*plain.overrides, f"trainer.accumulate_grad_batches={8 // factor}")
    assert "learning rate stays as it is" in finding.advice
    assert "lr_batch_size" not in finding.advice
    assert finding.predicted_speedup.median < plain.predicted_speedup.median  # as many updates as before


@pytest.mark.parametrize(("cause", "images"), [("small_batch", 8), ("optimizer", 32)])
def test_the_learning_rate_is_scaled_from_the_images_of_an_update(cause: str, images: int) -> None:
    record = example(cause, summary__world_size=2, summary__ceilings__alternatives=[])
    if cause == "small_batch":
        record = example(cause, summary__world_size=2)
    assert f"model.lr_scaling=linear model.lr_batch_size={2 * images} " in of(cause, record)[0].advice
    record.config["trainer"]["accumulate_grad_batches"] = 3
    if cause == "optimizer":
        assert f"model.lr_batch_size={6 * images} " in of(cause, record)[0].advice
    record.config["model"]["lr_scaling"] = "linear"
    assert "lr_" not in of(cause, record)[0].advice


@pytest.mark.parametrize(("cores", "title"), [(4, "16 computing threads are too many for 4 usable cores"), (1, "core")])
def test_threads_are_too_many_only_for_fewer_cores(cores: int, title: str) -> None:
    assert of("threads", example("threads", summary__environment__usable_cores=cores))[0].title.endswith(title)
    enough = of("threads", example("threads", summary__environment__usable_cores=16))[0]
    assert enough.title == "Fewer computing threads are faster"


def test_too_many_threads_of_ranks_are_found_without_measuring() -> None:
    record = example("threads", summary__ceilings={"reason": "several ranks"}, summary__threads=4)
    record.summary.update(devices=4, world_size=4)
    (finding,) = of("threads", record)
    assert finding.title == "4 computing threads are too many for 1 usable core of each rank"
    assert (finding.overrides, finding.advice) == (("threads=1",), "Compute on 1 thread.")
    assert finding.predicted_speedup.low == 1 < finding.predicted_speedup.median
    assert finding.predicted_speedup.high > 2
    assert diagnose(record)[0].title == finding.title
    assert of("threads", example("threads", summary__ceilings__alternatives=None))  # as strobe probe measures
    assert not of("threads", example("threads", summary__ceilings=None, summary__threads=4))
    assert not of("threads", example("threads", summary__ceilings=None, summary__accelerator="cuda"))


def test_fewer_updates_where_no_fused_optimizer_is_faster() -> None:
    finding = of("optimizer", example("optimizer", summary__ceilings__alternatives=[]))[0]
    key, _, factor = finding.overrides[0].partition("=")
    assert key == "trainer.accumulate_grad_batches"
    assert int(factor) > 1


@pytest.mark.parametrize(
    ("name", "kind", "overrides"),
    [
        ("WeightAudit", "callback", ("~callbacks.audit",)),
        ("WeightAudit 2", "callback", ()),
        ("ProgressBar", "callback", ("trainer.enable_progress_bar=false",)),
        ("TraceProfiler", "callback", ("profiler=none",)),
        ("Pictures", "callback", ()),
        ("ImageClassifier", "module", ()),
    ],
)
def test_a_callback_is_named_and_left_out_by_its_key(name: str, kind: str, overrides: tuple[str, ...]) -> None:
    hooks = [{"name": name, "kind": kind, "mean": 0.03, "longest": 0.05, "calls": 180}]
    finding = of("callback", example("callback", summary__callbacks=hooks))[0]
    who = f"Hooks of {name} itself take " if kind == "module" else f"{name.removesuffix(' 2')} takes "
    assert finding.title.startswith(who)
    assert finding.overrides == overrides


@pytest.mark.parametrize(
    ("batches", "measured", "updates", "every"),
    [
        (45, 180, 1.0, 5),  # as often as it may cost
        (4, 180, 1.0, 4),  # once an epoch
        (45, 30, 1.0, 3),  # in a short run ten times
        (45, 1800, 0.5, 5),  # counted in updates, of which each may cost as much as two steps
        (4, 1800, 0.5, 2),
        (45, 9, 1.0, None),
    ],
)
def test_logging_stays_as_often_as_is_read(batches: int, measured: int, updates: float, every: int | None) -> None:
    hook = {"name": "CSVLogger", "kind": "logger", "mean": 0.0144, "longest": 0.02, "calls": measured * updates}
    record = example("logging", summary__callbacks=[hook], summary__steps__measured=measured)
    record.summary.update(batches_per_epoch=batches, updates=updates)
    finding = of("logging", record)[0]
    assert finding.overrides == ((f"trainer.log_every_n_steps={every}",) if every else ())
    assert not every or f"every {every} {'steps' if updates == 1 else 'updates'}" in finding.advice


@pytest.mark.parametrize(
    ("name", "saves"),
    [
        ("Checkpoints", True),
        ("Checkpoints 3", True),
        ("ModelCheckpoint 2", True),
        ("CheckpointAudit", False),
        ("OnExceptionCheckpoint", False),
    ],
)
def test_checkpoints_are_told_from_callbacks_with_such_names(name: str, saves: bool) -> None:
    hook = {"name": name, "kind": "callback", "mean": 0.028, "longest": 0.191, "calls": 36}
    record = example("checkpoint", summary__callbacks=[hook])
    assert bool(of("checkpoint", record)) == saves
    assert bool(of("callback", record)) != saves
    record.config["callbacks"] = {"own": {"_target_": f"mine.{name}"}}
    assert not of("checkpoint", record)
    assert of("callback", record)[0].overrides == ("~callbacks.own",)


def test_an_added_callback_that_lightning_knows_to_save_is_told_to_save_less_often() -> None:
    """By its own key, beside what ``checkpoint`` configures."""
    hook = {"name": "Uploads", "kind": "checkpoint", "mean": 0.028, "longest": 0.191, "calls": 36}
    record = example("checkpoint", summary__callbacks=[hook])
    record.config["callbacks"] = {"own": {"_target_": "mine.Uploads", "every_n_train_steps": 5}}
    (override,) = of("checkpoint", record)[0].overrides
    key, _, every = override.partition("=")
    assert key == "callbacks.own.every_n_train_steps"
    assert every == "null" or int(every) > 5
    assert not of("callback", record)


def test_of_several_checkpoints_the_costliest_tells_how_often_they_save() -> None:
    saves = {"name": "Checkpoints", "kind": "checkpoint", "mean": 0.028, "longest": 0.191, "calls": 18}
    idles = saves | {"name": "Checkpoints 2", "mean": 1e-5, "calls": 90}
    alone = of("checkpoint", example("checkpoint", summary__callbacks=[saves]))[0]
    both = of("checkpoint", example("checkpoint", summary__callbacks=[saves, idles]))[0]
    assert both.overrides == alone.overrides


def test_an_update_of_embeddings_is_mostly_of_rows_that_the_batch_does_not_have() -> None:
    record = example("optimizer")
    record.summary["embedded"] = 0.3
    assert "sparse=True" not in of("optimizer", record)[0].advice
    record.summary["embedded"] = 0.97
    advice = of("optimizer", record)[0].advice
    assert advice.startswith("97% of the weights are rows of embeddings")
    assert "nn.Embedding(..., sparse=True)" in advice


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_a_fused_update_is_named_before_fewer_updates(accelerator: str) -> None:
    record = example("optimizer", summary__ceilings__alternatives=[], summary__accelerator=accelerator)
    assert "fused" not in of("optimizer", record)[0].advice  # whether there is one is not known
    record.config["optimizer"] = {"unfused": "AdamW"}
    advice = of("optimizer", record)[0].advice
    assert advice.startswith("Try its fused update")
    assert "AdamW(..., fused=True) (not measured). Or: Update once every" in advice


def test_what_an_update_spends_on_looking_for_a_gpu_is_told_where_it_is_much() -> None:
    record = example("optimizer", summary__ceilings__alternatives=[])
    record.config["optimizer"] = {"unfused": "Adam"}
    for share, told in ((0.5, True), (0.05, False)):
        look = {"phase": "optimizer", "file": None, "line": None, "function": None, "code": None, "library": GPU_CHECK}
        record.summary["lines"] = [look | {"share": share, "python": 0.0, "torch": False}]
        finding = of("optimizer", record)[0]
        assert ("of that looks for a GPU" in finding.evidence) == told
        assert finding.advice.startswith("Set the environment's CUDA_VISIBLE_DEVICES to nothing") == told


def test_batches_of_validation_that_are_far_smaller_than_those_of_training_are_named() -> None:
    record = example("validation", summary__batch_size=256)
    record.config["validation"] = {"batch_size": 1}
    advice = of("validation", record)[0].advice
    assert advice.startswith(
        "Its batches have 1 sample, those of training 256: use larger ones, DataLoader(..., batch_size=256)."
    )
    record.config["validation"] = {"batch_size": 128}
    assert "batches have" not in of("validation", record)[0].advice


def test_lbfgs_is_not_told_to_accumulate_gradients() -> None:
    record = example("optimizer", summary__ceilings__alternatives=[])
    assert "Update once every" in of("optimizer", record)[0].advice
    record.config["optimizer"] = {"searches": True}
    finding = of("optimizer", record)[0]
    assert finding.overrides == ()
    assert "max_iter" in finding.advice


def test_a_bound_is_that_of_all_waiting_whatever_else_explains_a_part_of_it() -> None:
    predicted = {"median": 1.9, "low": 0.7, "high": 70.0}
    waits = {"cause": "loader", "overrides": [], "lost": 0.69, "share": 0.96, "predicted_speedup": predicted}
    assert bound(waits) == "With no waiting at all, training would be up to 25.0x as fast"


def test_what_bounds_a_gain_is_the_share_that_is_lost_and_without_one_the_prediction() -> None:
    def told(high: float, lost: float | None) -> str:
        predicted = {"median": 2.4, "low": 2.0, "high": high}
        return bound({"cause": "logging", "overrides": [], "lost": lost, "predicted_speedup": predicted})

    assert told(3.0, 0.6) == told(7.0, 0.6) == "Without it, training would be up to 2.5x as fast"
    assert told(3.0, None) == "Without it, training would be up to 3.0x as fast"
    assert told(3.0, 0.0) == "Without it, training would be up to 2.4x as fast"


@pytest.mark.parametrize(("cause", "most"), [("quota", 1 / (1 - 0.31)), ("swapping", 1 / (1 - 0.45))])
def test_what_is_part_of_other_causes_is_bounded_by_all_that_it_takes(cause: str, most: float) -> None:
    (found,) = diagnose(example(cause))
    assert most_of(found.as_dict()) == pytest.approx(most)


def test_a_backward_pass_that_outlives_its_use_is_told_on_a_cpu() -> None:
    record = example("unused_gradients")
    record.summary.update(unused_gradients=None, unused_backward={"backward": 0.4})
    assert "40% of the backward pass is for gradients that no update uses" in of("unused_gradients", record)[0].title
    record.summary["like"] = {"first": {"backward": 0.75}, "last": None}  # other steps are of another optimizer
    assert "30% of the backward pass is for gradients that no update uses" in of("unused_gradients", record)[0].title
    record.summary["like"] = None
    record.summary["unused_backward"] = {"forward": 0.4}  # a loop's own, whose hooks see the pass begin late
    assert "of a step is for gradients that no update uses" in of("unused_gradients", record)[0].title
    record.summary["accelerator"] = "cuda"  # whose host runs ahead
    assert not of("unused_gradients", record)


CACHE, PACK = "data.cache=data/cache", "loader=packed"


@pytest.mark.parametrize(
    ("cause", "changes", "overrides"),
    [
        ("storage_latency", {}, ["engine=litdata engine.num_workers=4", CACHE, PACK]),
        ("too_few_requests", {}, ["data.requests=128", CACHE, PACK]),
        ("storage_bandwidth", {}, [CACHE, PACK]),
        ("storage_bandwidth", {"config__data__cache": "data/cache"}, [PACK]),
        ("cold_cache", {}, [""]),
        ("cold_cache", {"summary__ceilings__storage__more": 1e6}, ["data.requests=128"]),
    ],
)
def test_waiting_for_the_storage_has_remedies_to_paste(
    cause: str, changes: dict[str, Any], overrides: list[str]
) -> None:
    (finding,) = of(cause, example(cause, **changes))
    assert [" ".join(one.overrides) for one in (finding, *finding.remedies)] == overrides


def test_of_the_remedies_only_those_are_told_that_the_run_can_take() -> None:
    record = example("storage_bandwidth")
    record.config["loader"].update(shards="s3://b/x", stream=True)
    (streamed,) = of("storage_bandwidth", record)
    assert (streamed.overrides, streamed.remedies) == (("loader.stream=false",), ())
    assert "strobe.pack" not in streamed.advice
    record.config["loader"].update(shards=None, stream=False)
    del record.config["data"]["bands"]
    record.config["data"]["framing"] = "random_crop"
    assert not of("storage_bandwidth", record)[0].remedies
    record.config["data"]["framing"] = "resize"
    assert [one.overrides for one in of("storage_bandwidth", record)[0].remedies] == [(PACK,)]


@pytest.mark.parametrize("cause", ["checkpoint", "epoch_checkpoint"])
def test_what_checkpoints_hold_beside_weights_is_told(cause: str) -> None:
    kept = {"rate_table": 2_000_000, "teacher_logits": 160_000_000}
    record = example(cause)
    record.summary["hyperparameters"] = kept
    (finding,) = of(cause, record)
    assert "162 MB of hyperparameters" in finding.advice
    assert 'save_hyperparameters(ignore=["teacher_logits", "rate_table"])' in finding.advice
    assert "hyperparameters" not in of(cause, example(cause))[0].advice


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("/site/rasterio/__init__.py", "at rasterio/__init__.py:9 (`open()`)"),
        ("/home/train.py", "at train.py:9 (`open()`)"),
    ],
)
def test_of_a_file_of_which_there_are_many_the_folder_is_told(file: str, told: str) -> None:
    assert at_line(file, 9, "open()") == told
