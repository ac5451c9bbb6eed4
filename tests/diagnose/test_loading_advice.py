"""What rules advise on loading: workers, samplers, collating, and what makes batches late."""

import pytest

from strobe.callbacks.columns import COLLATING, SAMPLING
from strobe.diagnose import foreign
from strobe.diagnose.fetching import for_bytes, more_requests, storage_cause
from strobe.diagnose.predict import step_of
from strobe.diagnose.promise import bound
from strobe.diagnose.rank import diagnose
from support.recorded import example, of


def test_loader_without_measurements_says_how_far_workers_may_carry() -> None:
    finding = of("loader", example("loader", summary__ceilings__alternatives=[]))[0]
    assert finding.overrides[0].startswith("engine.num_workers=")
    measured = of("loader", example("loader"))[0].predicted_speedup
    assert finding.predicted_speedup.high - finding.predicted_speedup.low > measured.high - measured.low


def test_loader_without_a_remedy_names_what_is_full() -> None:
    record = example("loader", summary__ceilings__alternatives=[], summary__environment__usable_cores=2)
    record.summary["num_workers"], record.summary["ceilings"]["cpu_seconds"]["loader"] = 2, 2 / 280
    assert (
        "2 workers load no faster than one process does." in of("loader", record)[0].evidence
    )  # 280/s, 120 ms a batch
    record.summary["ceilings"]["loading"] = None
    finding = of("loader", record)[0]
    assert finding.overrides == ()
    assert finding.advice.startswith("No alternative was measured")
    assert finding.advice.endswith("The cores have room for 2 workers, and no more.")
    slower = {"overrides": ["loader=rasterio"], "side": "loader", "rate": 90.0, "interval": [89.0, 91.0]}
    record.summary["ceilings"]["alternatives"].append(slower)
    assert of("loader", record)[0].advice.startswith("No measured alternative loads faster")


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ({}, "(not measured: they share the cores with training)."),
        ({"idle": 0.6}, "(not measured)."),
        ({"idle": 0.1, "own": 0.4, "others": 0.5}, "(not measured)."),  # others come and go
        ({"idle": 0.2}, "(not measured: the 20% of the cores that training leaves idle allow 1.2x at most)."),
        ({"idle": 0.05}, "No core is free for workers (training leaves 5% idle): measure whether "),
    ],
)
def test_untried_workers_have_what_training_leaves_idle(machine: dict[str, float], told: str) -> None:
    record = example("loader", summary__ceilings__alternatives=[])
    record.summary.update(machine=machine, script="python train.py")
    finding = next(one for one in diagnose(record) if one.cause == "loader")
    assert told in finding.advice
    assert bound(finding.as_dict()).startswith("With no waiting at all, training would be up to")


def test_cores_that_workers_took_are_named_before_the_storage() -> None:
    record = example("loader", summary__ceilings__alternatives=[], summary__environment__usable_cores=2)
    record.summary.update(num_workers=2, threads=2, machine={"idle": 0.04})
    record.summary["uneven"] = {"phase": "data_wait", "steps": 3, "extra_seconds": 1.0}
    record.summary["ceilings"] |= {"loading": None, "cpu_seconds": {"loader": 2 / 280, "model": 0.013}}
    finding = of("loader", record)[0]
    assert "2 workers and 2 computing threads share 2 cores (training leaves 4% idle)" in finding.evidence
    assert finding.advice.startswith("Going further needs more cores")
    assert "storage" not in finding.advice
    assert "some samples" not in finding.evidence
    assert "share 2 cores (training leaves 4% idle)" in of("uneven_steps", record)[0].evidence
    record.summary["machine"] = {"idle": 0.5}
    assert "look at the storage" in of("loader", record)[0].advice
    record.summary["machine"] = {"idle": 0.04}
    record.summary["ceilings"] |= {"model": 2000.0, "intervals": {}}  # what the model loses to them is much of the wait
    assert of("loader", record)[0].advice.startswith("Try fewer workers, or none")


@pytest.mark.parametrize("script", [None, "python train.py"])
def test_more_workers_are_not_the_answer_to_a_slow_sampler(script: str | None) -> None:
    record = example("loader", summary__ceilings__alternatives=[])
    record.summary.update(script=script, num_workers=2, main_used={"data_wait": 0.9})
    finding = next(one for one in diagnose(record) if one.cause == "loader")
    assert "For 90% of that wait the training process computes" in finding.evidence
    assert "make the sampler cheaper" in finding.advice
    assert finding.overrides == finding.changes == ()


def test_a_worker_is_no_answer_to_batches_that_are_made_as_fast_as_it_hands_them_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = example("loader", summary__ceilings__alternatives=[])
    record.summary.update(script="python train.py", num_workers=0)
    record.config["engine"] = {"num_workers": 0}
    found = []
    for seconds in (foreign.HANDED, 10.0):
        monkeypatch.setattr(foreign, "HANDED", seconds)
        found += [one for one in diagnose(record) if one.cause == "loader"]
    assert [one.advice.startswith("Workers would not help") for one in found] == [False, True]
    assert [bool(one.changes) for one in found] == [True, False]


def test_a_few_late_batches_are_told_from_a_slow_loader() -> None:
    record = example("loader", summary__ceilings__alternatives=[])
    wait, measured = record.summary["step_seconds"]["data_wait"], record.summary["steps"]["measured"]
    record.summary["uneven"] = {"phase": "data_wait", "steps": 3, "extra_seconds": 0.9 * wait}
    assert f"Most of the wait is in 3 of {measured} steps: some samples take" in of("loader", record)[0].evidence
    record.summary["uneven"]["steps"] = measured - 1
    assert "Most of the wait is in" not in of("loader", record)[0].evidence


def test_what_takes_most_of_loading_is_named() -> None:
    record = example("loader")
    finding = of("loader", record)[0]
    assert finding.evidence.endswith("a batch takes 120 ms: decoding 70%, collating 20%, reading 8%.")
    assert "collating" not in finding.advice  # which is not most of it
    record.summary["ceilings"]["loading"] |= {"parts": {"collate": 0.1, "read": 0.02}, "cores": 0.1}
    finding = of("loader", record)[0]
    assert finding.evidence.endswith("collating 83%, reading 17%; most of that time is waiting, not computing.")
    assert "Most of loading is collating" in finding.advice
    assert finding.overrides == of("loader", example("loader"))[0].overrides


def test_the_files_of_late_batches_are_named() -> None:
    record = example("uneven_steps")
    finding = of("uneven_steps", record)[0]
    assert "typical one (2 ms, 107 kB): data/photos/a.jpg (410 ms, 9.1 MB), data/photos/b.jpg (380 ms, 8.8 MB)." in (
        finding.evidence
    )
    assert finding.advice.startswith("Make these files smaller")
    record.summary["uneven"]["files"]["slow"] = []
    finding = of("uneven_steps", record)[0]
    assert "None of 120 of their files, read again after training, was slow: the storage stalled." in finding.evidence
    record.summary["uneven"]["files"] = None
    assert "files" not in of("uneven_steps", record)[0].evidence


def test_of_long_steps_that_begin_epochs_that_is_told() -> None:
    record = example("uneven_steps", summary__uneven__phase="optimizer", summary__uneven__files=None)
    record.summary["step_seconds"]["optimizer"] = record.summary["uneven"]["extra_seconds"]
    record.summary["uneven"]["begin_epochs"] = record.summary["uneven"]["steps"] - 1  # one other
    finding = of("uneven_steps", record)[0]
    assert finding.evidence.endswith("most of it the update. They begin epochs.")
    assert "what runs every so many batches begins with it" in finding.advice
    record.summary["uneven"]["begin_epochs"] = record.summary["uneven"]["steps"] // 2
    assert "epoch" not in of("uneven_steps", record)[0].evidence


def test_workers_that_are_slower_than_one_process_send_too_much() -> None:
    record = example("loader", summary__num_workers=1, summary__ceilings__alternatives=[])
    step = step_of(record)
    assert step is not None
    assert step.loader is not None
    record.summary["ceilings"]["loading"] |= {"seconds": step.images / step.loader.median / 5}
    evidence, advice = of("loader", record)[0].evidence, of("loader", record)[0].advice
    assert "1 worker loads 5.0 times as slowly as the training process alone" in evidence
    assert advice.startswith("Load without workers (num_workers=0), or send few large tensors")


DRAWN = [
    {"phase": "data_wait", "file": "train.py", "line": 9, "function": "__iter__", "share": 0.9, "library": SAMPLING}
]


def test_where_default_collate_makes_the_batches_samples_should_be_tensors() -> None:
    record = example("loader", summary__ceilings=None)
    record.summary["lines"] = [DRAWN[0] | {"library": COLLATING}]
    (finding,) = of("loader", record)
    assert "90% of the wait goes to joining samples into batches" in finding.evidence
    assert "not lists: each number" in finding.advice


def test_loaders_that_are_made_anew_are_named_where_it_takes_long() -> None:
    record = example("between", summary__after=[])
    record.config["trainer"]["reload_dataloaders_every_n_epochs"] = 1
    (finding,) = of("between", record)
    assert "not with reload_dataloaders_every_n_epochs=1" in finding.advice


def test_where_the_sampler_draws_indices_no_worker_is_proposed() -> None:
    record = example("loader", summary__ceilings__alternatives=[])
    record.summary["lines"] = DRAWN
    assert "For 90% of that wait the sampler draws the indices" in of("loader", record)[0].evidence
    assert of("loader", record)[0].advice.startswith("More workers would not help: make the sampler cheaper")
    record = example("epoch_start")
    assert "the data set's __iter__" in of("epoch_start", record)[0].advice
    record.summary["lines"] = DRAWN
    assert of("epoch_start", record)[0].advice == "Let the sampler draw no more indices than an epoch uses."
    record.summary["epoch_starts"]["count"] = record.summary["steps"]["measured"]
    assert "next(iter(loader))" in of("epoch_start", record)[0].advice


def test_where_no_loader_gives_the_batches_nothing_is_said_of_waiting_for_one() -> None:
    record = example("nothing", summary__ceilings=None, summary__efficiency=None)
    assert "waits for data" in of("nothing", record)[0].evidence
    record.config["unloaded"] = True
    assert "No DataLoader gives the batches" in of("nothing", record)[0].evidence
    assert "waits for data" not in of("nothing", record)[0].evidence


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("all_fetched", [True, False])
def test_ranks_that_decode_slowly_do_not_wait_for_the_storage(ranks: int, all_fetched: bool) -> None:
    """For each rank the storage gives four times what its loader gives."""
    record = example("storage_bandwidth")
    summary, rate = record.summary, 4 * record.summary["ceilings"]["loader"]
    summary.update(world_size=ranks, devices=ranks)
    summary["environment"]["usable_cores"] *= ranks
    summary["overall_images_per_second"] *= ranks
    for figures in (summary["images_per_second"], summary["ceilings"]):
        figures.update({name: value * ranks for name, value in figures.items() if isinstance(value, float)})
    for side, ends in summary["ceilings"]["intervals"].items():
        summary["ceilings"]["intervals"][side] = ends and [end * ranks for end in ends]
    summary["ceilings"]["storage"] |= {"rate": rate, "more": rate}
    if all_fetched:
        summary["ceilings"]["storage"] |= {"rate": rate * ranks, "more": rate * ranks, "ranks": ranks}
    assert diagnose(record)[0].cause == "loader"


@pytest.mark.parametrize(
    ("requests", "workers", "at_once", "overrides"),
    [
        (32, 4, 32, ("data.requests=128",)),
        (128, 2, 64, ("data.requests=256", "engine=litdata", "engine.num_workers=8")),
        (512, 2, 64, ("engine=litdata", "engine.num_workers=8")),
        (1024, 64, 1024, ()),
    ],
)
def test_more_objects_are_asked_for_by_whatever_limits_them(
    requests: int, workers: int, at_once: int, overrides: tuple[str, ...]
) -> None:
    """A worker asks for those of its batch, here of 32 images."""
    record = example("too_few_requests", summary__num_workers=workers)
    record.config["data"]["requests"] = requests
    record.summary["ceilings"]["storage"]["at_once"] = at_once
    step = step_of(record)
    assert step is not None
    assert more_requests(record, step) == overrides


def test_all_ranks_requests_are_counted_where_they_wait_for_each_other() -> None:
    record = example("storage_bandwidth")
    record.summary["world_size"] = 2
    record.summary["ceilings"]["storage"] |= {"at_once": 4, "alone_seconds": 0.006, "ranks": 2}
    step = step_of(record)
    assert step is not None
    assert storage_cause(record, step) == "storage_bandwidth"
    assert for_bytes(record, step) > 0
    del record.summary["ceilings"]["storage"]["ranks"]
    assert storage_cause(record, step) is None
    assert not for_bytes(record, step)
