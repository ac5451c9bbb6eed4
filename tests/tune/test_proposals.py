"""What is measured and tried next: combinations, what a record's findings prescribe, then what is only bounded."""

from typing import Any

import pytest

from strobe.diagnose.candidates import estimate_of_loader
from strobe.diagnose.predict import step_of, with_model
from strobe.diagnose.rank import diagnose
from strobe.overrides import key_of
from strobe.records.run import Alternative, Figure, Record
from strobe.tune import composing
from strobe.tune.composing import AS_GOOD
from strobe.tune.dimensions import DIMENSIONS, ON_REQUEST, OVER
from strobe.tune.proposals import Proposal, advice, proposals
from support.recorded import CAUSES, example


def concluded(cause: str, **changes: Any) -> Record:
    """The example with its findings, as a run leaves it behind."""
    record = example(cause, **changes)
    findings = [finding.as_dict() for finding in diagnose(record)]
    return Record(record.summary | {"findings": findings}, record.config)


def offered(record: Record, over: list[str] | None = None) -> list[Proposal]:
    return list(proposals(record, over, budget=600.0, measure=lambda side, changes: None))


ON_A_GPU = ("matmul", "benchmark")  # dimensions


def measured(record: Record, over: list[str] | None = None, budget: float = 600.0) -> set[str]:
    """What is asked to be measured alone, where nothing makes a difference."""
    asked: set[str] = set()

    def measure(side: str, changes: tuple[str, ...]) -> Alternative | None:
        asked.update(changes)
        rate = record.rate(side)
        return Alternative(side, changes, rate, 0.1, record.number("batch_size")) if rate else None

    assert list(proposals(record, over, budget=budget, measure=measure)) is not None
    return asked


@pytest.mark.parametrize("cause", CAUSES)
def test_each_finding_is_a_proposal_or_advice(cause: str) -> None:
    record = concluded(cause)
    prescribed = {override for proposal in offered(record) if not proposal.bounded for override in proposal.overrides}
    for found in record.items("findings"):
        searched = all(DIMENSIONS.get(key_of(override)) not in (None, *ON_REQUEST) for override in found["overrides"])
        if found["overrides"] and searched:
            assert set(found["overrides"]) <= prescribed
        elif found["overrides"]:
            assert any(found["title"] in line for line in advice(record))


@pytest.mark.parametrize("cause", CAUSES)
def test_combinations_come_first_then_prescriptions_as_they_were_predicted(cause: str) -> None:
    record = concluded(cause)
    offers = offered(record)
    assert [proposal.bounded for proposal in offers] == sorted(proposal.bounded for proposal in offers)
    assert len({frozenset(proposal.overrides) for proposal in offers}) == len(offers)
    step = step_of(record)
    assert step is not None
    loading, computing = (
        [one for one in record.alternatives(side) if one.changes.keys() <= DIMENSIONS.keys()]
        for side in ("loader", "model")
    )
    known = [speedup for one in loading if (speedup := estimate_of_loader(record, step, one))]
    known += [with_model(step, one.rate, images=one.images, ratio=one.ratio) for one in computing]
    if (best := max((speedup.median for speedup in known), default=0.0)) >= 1.03:
        assert offers[0].predicted
        assert offers[0].predicted.median * AS_GOOD >= best
    titles = [found["title"] for found in record.items("findings")]
    told = [one.why for one in offers if one.why in titles]
    assert told == sorted(told, key=titles.index)


def test_a_change_is_measured_with_the_others_that_it_depends_on() -> None:
    record = concluded("memory_layout")
    record.summary["environment"]["cpu_bfloat16"] = True
    size, precision = record.whole("data.batch_size") or 0, "trainer.precision=bf16-mixed"
    found: list[tuple[str, tuple[str, ...]]] = []

    def measure(side: str, changes: tuple[str, ...]) -> Alternative | None:
        found.append((side, changes))
        rate = 100.0 * (2 if precision in changes else 1)
        return Alternative(side, changes, Figure(rate, 0.9 * rate, 1.1 * rate), 0.1, size)

    list(proposals(record, ["precision", "channels_last", "batch_size"], budget=600.0, measure=measure))
    layout = next(text for _, changes in found for text in changes if text.startswith("model.channels_last"))
    assert ("model", tuple(sorted((layout, precision)))) in found
    assert ("model", tuple(sorted((f"data.batch_size={2 * size}", precision)))) in found
    assert {side for side, _ in found} == {"model"}


def test_of_larger_batches_only_those_that_two_trainings_can_be_compared_with_in_time() -> None:
    record = concluded("small_batch")

    def sizes(budget: float) -> set[str]:
        return {text for text in measured(record, ["batch_size"], budget) if text.startswith("data.batch_size=")}

    assert sizes(1.0) < sizes(1e6)


def test_the_other_choices_are_measured_before_the_largest_batches() -> None:
    record, asked = concluded("nothing"), list[tuple[str, ...]]()

    def measure(side: str, changes: tuple[str, ...]) -> Alternative | None:
        """Twice the batch is a little faster, and another layout beside larger batches only."""
        asked.append(changes)
        size = next((int(text.partition("=")[2]) for text in changes if "batch_size" in text), own)
        rate = 1000.0 * 1.05 ** (size.bit_length() - own.bit_length())
        rate *= 1.5 if any("channels_last" in text for text in changes) and size > own else 1.0
        return Alternative(side, changes, Figure(rate, rate, rate), 0.1, float(size))

    own = int(record.number("batch_size") or 0)
    record.summary["ceilings"] |= {"model": 1000.0, "alternatives": []}
    list(proposals(record, ["channels_last", "batch_size"], budget=1e6, measure=measure))
    models = [changes for changes in asked if any("batch_size" in text for text in changes)]
    first = next(place for place, changes in enumerate(models) if any("channels_last" in text for text in changes))
    assert first < len(models) - 1
    assert all(any("channels_last" in text for text in changes) for changes in models[first:])


def test_a_larger_batch_brings_its_learning_rate_and_a_warning() -> None:
    record = concluded("small_batch", config__model__lr_scaling="none")
    proposal = next(proposal for proposal in offered(record) if "batch_size" in proposal.dimensions)
    now = record.whole("data.batch_size")
    assert {"model.lr_scaling=linear", f"model.lr_batch_size={now}"} <= set(proposal.overrides)
    assert proposal.dimensions == {"batch_size"}
    assert proposal.images is not None
    assert proposal.images[0] == now
    assert all(proposal.images for proposal in offered(record, ["batch_size"]))


def test_a_learning_rate_that_is_scaled_already_stays_so() -> None:
    record = concluded("small_batch", config__model__lr_scaling="linear")
    proposal = next(proposal for proposal in offered(record) if "batch_size" in proposal.dimensions)
    assert not any(key_of(override).startswith("model.lr") for override in proposal.overrides)
    assert proposal.images is not None


def test_accumulated_gradients_change_training_too() -> None:
    record = concluded("optimizer")
    now = record.whole("data.batch_size") or 0
    accumulate = record.items("findings")[0] | {"overrides": ["trainer.accumulate_grad_batches=4"]}
    (proposal,) = offered(Record(record.summary | {"findings": [accumulate]}, record.config), ["batch_size"])
    assert proposal.images == (now, 4 * now)
    assert all(proposal.images is None for proposal in offered(concluded("threads"), ["threads"]))


@pytest.mark.parametrize("name", [name for name in OVER if name not in ("prefetch", *ON_A_GPU)])
def test_only_what_is_asked_for_and_something_of_each(name: str) -> None:
    found = [proposal for cause in CAUSES for proposal in offered(concluded(cause), [name])]
    asked = {text for cause in CAUSES for text in measured(concluded(cause), [name])}
    assert found or asked
    assert all(proposal.dimensions == {name} for proposal in found)
    assert {DIMENSIONS[key_of(text)] for text in asked} <= {name}


def test_workers_that_are_waited_for_may_keep_more_ready() -> None:
    record = concluded("loader", summary__num_workers=1, config__engine__num_workers=1)
    factor = record.whole("engine.prefetch_factor") or 0
    assert [one.overrides for one in offered(record, ["prefetch"])] == [(f"engine.prefetch_factor={2 * factor}",)]


def test_workers_may_stay_where_each_short_epoch_begins_new_ones_that_are_waited_for() -> None:
    own = {"summary__num_workers": 1, "config__engine__num_workers": 1, "config__engine__persistent_workers": False}
    stay = ("engine.persistent_workers=true",)
    short = concluded("loader", summary__batches_per_epoch=4, **own)
    assert stay in [one.overrides for one in offered(short, ["workers"])]
    long = concluded("loader", summary__batches_per_epoch=1_000_000, **own)
    assert stay not in [one.overrides for one in offered(long, ["workers"])]


def test_of_a_part_of_a_prescription_only_the_most_is_known() -> None:
    (proposal,) = offered(concluded("transfer"), ["pinning"])
    assert proposal.overrides == ("engine.pin_memory=true",)
    assert proposal.bounded


def test_ways_of_loading_are_measured_where_there_is_something_to_gain_and_only_there() -> None:
    waiting = measured(concluded("loader"))
    assert {"engine=resident", "engine.num_workers=1"} <= waiting
    assert not any(text.startswith(("engine", "loader")) for text in measured(concluded("nothing")))


def test_what_gives_its_samples_to_each_worker_gets_more_than_one_only_if_that_is_asked_for() -> None:
    record = concluded("loader")
    record.config["engine"]["iterable"] = True
    record.summary["ceilings"]["alternatives"] = []
    record.summary["findings"][0] |= {"overrides": ["engine.num_workers=4"]}

    def counts(over: list[str] | None) -> list[str]:
        offers = [text for proposal in offered(record, over) for text in proposal.overrides]
        return sorted(text for text in {*measured(record, over), *offers} if text.startswith("engine.num_workers="))

    assert counts(None) == ["engine.num_workers=1"]
    assert len(counts(["workers"])) > 1
    title = record.items("findings")[0]["title"]
    assert any(title in line for line in advice(record))
    assert not any(title in line for line in advice(record, ["workers"]))


def test_a_set_that_takes_long_to_load_is_not_made_resident() -> None:
    record = concluded("loader", summary__train_images=10_000_000)
    assert "engine=resident" not in measured(record)
    assert "engine=resident" in measured(record, budget=1e9)


def test_spdl_is_measured_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composing, "find_spec", lambda _: None)
    assert "engine=spdl" not in measured(concluded("loader"))
    monkeypatch.setattr(composing, "find_spec", lambda _: "installed")
    assert "engine=spdl" in measured(concluded("loader"))


def test_compiling_is_tried_when_it_is_asked_for() -> None:
    record = concluded("nothing")
    assert not any("model.compile=true" in proposal.overrides for proposal in offered(record))
    assert "model.compile=true" not in measured(record)
    assert "model.compile=true" in measured(record, ["compile"])
    (proposal,) = offered(record, ["compile"])
    assert proposal.overrides == ("model.compile=true",)


def test_of_a_loop_without_a_trainer_what_may_compute_faster_is_tried_without_a_prediction() -> None:
    record = concluded("optimizer", summary__ceilings=None)
    record.config["model"]["fused"] = False
    changes = {one.overrides: one.predicted for one in offered(record)}
    assert ("model.fused=true",) not in changes
    record.config["loop"] = True
    changes = {one.overrides: one.predicted for one in offered(record)}
    assert changes["model.fused=true",] is None
    assert not any("model.fused=true" in one for one in ({*changes} - {("model.fused=true",)}))


def test_what_lies_between_the_epochs_of_a_loop_is_not_predicted_and_said_not_to_be_compared() -> None:
    record = concluded("loader", summary__between_seconds={"between": 0.5})
    whole = offered(record)[0].predicted
    assert not any("between epochs" in line for line in advice(record))
    record.config["loop"] = True
    of_steps = offered(record)[0].predicted
    assert whole is not None
    assert of_steps is not None
    assert of_steps.median > whole.median > 1
    assert any("of training lies between epochs, such as a validation" in line for line in advice(record))


def with_validations(*, batches: int, interval: float | None, epochs: int | None) -> Record:
    """A script's that takes as long for validations as for its steps."""
    record = concluded("nothing", summary__batches_per_epoch=batches)
    step = step_of(record)
    assert step is not None
    pause = step.total * step.images
    record.summary.update(between_seconds={"validation": pause}, script="python train.py")
    record.summary["ceilings"] |= {"between": {"validation": pause}, "off": ["CSVLogger"]}
    record.summary["overall_images_per_second"] = 1 / (2 * step.total)
    record.config["trainer"] |= {"val_check_interval": interval, "check_val_every_n_epoch": epochs, "max_epochs": -1}
    record.config["trainer"]["log_every_n_steps"] = 1
    return record


@pytest.mark.parametrize(
    ("batches", "interval", "epochs", "tried", "gain"),
    [
        (4, 1.0, 1, ("trainer.check_val_every_n_epoch=10",), 2 / 1.1),
        (40, 0.25, 1, ("trainer.val_check_interval=null", "trainer.check_val_every_n_epoch=2"), 2 / (1 + 1 / 8)),
        (40, 4, None, ("trainer.val_check_interval=40",), 2 / 1.1),
        (10**6, 1.0, 1, None, 1.0),  # in no turn there would be one
    ],
)
def test_validation_is_tried_less_often_only_where_that_is_asked_for(
    batches: int, interval: float, epochs: int | None, tried: tuple[str, ...] | None, gain: float
) -> None:
    record = with_validations(batches=batches, interval=interval, epochs=epochs)
    offers = offered(record, ["validation"])
    assert [one.overrides for one in offers] == ([tried] if tried else [])
    assert [one.predicted.median for one in offers if one.predicted] == pytest.approx([gain] * len(offers), rel=0.03)
    assert not any(one.dimensions & {"validation", "logging"} for one in offered(record))


def test_logging_is_tried_less_often_only_where_that_is_asked_for_and_something_logs() -> None:
    record = with_validations(batches=4, interval=1.0, epochs=1)
    assert [one.overrides for one in offered(record, ["logging"])] == [("trainer.log_every_n_steps=50",)]
    record.config["trainer"]["log_every_n_steps"] = 50
    assert [one.overrides for one in offered(record, ["logging"])] == [("trainer.log_every_n_steps=500",)]
    record.summary["ceilings"]["off"] = []
    assert offered(record, ["logging"]) == []


def test_what_is_compiled_is_measured_without() -> None:
    record = concluded("nothing")
    record.config["model"]["compile"] = True
    assert "model.compile=false" in measured(record)


def test_more_threads_are_measured_where_cores_are_left_over() -> None:
    def counts(threads: int) -> set[str]:
        record = concluded("nothing", summary__threads=threads, summary__num_workers=0)
        assert record.number("environment", "usable_cores") == 8
        return {text for text in measured(record) if text.startswith("threads")}

    assert [counts(threads) for threads in (1, 8, 16)] == [{"threads=8"}, set(), {"threads=8"}]


def test_where_threads_outnumber_the_cores_all_else_is_measured_with_fewer() -> None:
    record, asked = concluded("nothing", summary__threads=32, summary__num_workers=0), list[tuple[str, ...]]()

    def measure(side: str, changes: tuple[str, ...]) -> Alternative | None:
        asked.append(changes)
        rate = record.rate(side)
        assert rate is not None
        faster = Figure(*(2 * value for value in (rate.median, rate.low, rate.high)))
        return Alternative(side, changes, faster if "threads=8" in changes else rate, 0.1, record.number("batch_size"))

    list(proposals(record, None, budget=600.0, measure=measure))
    assert asked[0] == ("threads=8",)
    assert ("model.fused=true", "threads=8") in asked


def test_an_optimizer_without_a_fused_update_is_tried_with_foreach_where_torch_does_not_take_it_itself() -> None:
    record = concluded("nothing")
    del record.config["model"]["fused"]
    record.config["model"]["foreach"] = False
    assert "model.fused=foreach" in measured(record)
    assert "model.fused=true" not in measured(record)
    record.summary["environment"]["gpu_capability"] = [8, 0]
    assert "model.fused=foreach" in measured(record)  # a GPU beside a training on the CPU
    record.summary["accelerator"] = "cuda"
    assert "model.fused=foreach" not in measured(record)


def test_a_run_without_a_measured_step_has_none() -> None:
    assert offered(Record({"schema": 1, "status": "failed"})) == []


def test_what_was_left_on_to_find_a_bug_is_measured_without_first() -> None:
    record, asked = concluded("debugging"), list[tuple[str, ...]]()

    def measure(side: str, changes: tuple[str, ...]) -> Alternative | None:
        asked.append(changes)
        return None

    list(proposals(record, None, budget=600.0, measure=measure))
    assert asked[0] == ("trainer.detect_anomaly=false",)


def test_other_kernels_are_tried_on_a_gpu_that_has_them() -> None:
    """By the application's settings."""
    record = concluded("nothing")
    record.summary["accelerator"], record.config["matmul_precision"] = "cuda", "highest"
    record.config["trainer"] |= {"benchmark": None, "deterministic": None}
    record.config["model"]["compile"] = False
    both = {"trainer.benchmark=true", "matmul_precision=high"}
    assert not both & measured(record)
    record.summary["environment"] |= {"gpu_capability": [8, 0], "cpu_bfloat16": True}
    assert {*both, "model.compile=true"} <= measured(record)
    record.summary["accelerator"] = "cpu"  # beside that GPU
    assert not {*both, "model.compile=true"} & measured(record)
    record.summary["accelerator"] = "cuda"
    assert both & measured(record, ["matmul"]) == {"matmul_precision=high"}
    record.summary["environment"]["gpu_capability"] = [7, 5]  # without TensorFloat-32
    record.config["trainer"]["deterministic"] = True
    assert not both & measured(record)


def test_cudnn_tries_its_algorithms_only_where_it_does_not_yet() -> None:
    record = concluded("nothing")
    assert "trainer.benchmark=true" not in measured(record)
    record.summary["accelerator"], record.summary["environment"]["gpu_capability"] = "cuda", [8, 0]
    record.config["benchmark"] = False
    assert "trainer.benchmark=true" in measured(record)
    record.config["benchmark"] = True
    assert "trainer.benchmark=true" not in measured(record)


def test_workers_that_are_spawned_are_forked_only_if_that_is_asked_for() -> None:
    record = concluded("workers_restart")
    record.config["engine"]["multiprocessing_context"] = "spawn"
    forked = ("engine.multiprocessing_context=fork",)
    assert forked not in [one.overrides for one in offered(record)]
    (proposal,) = [one for one in offered(record, ["workers"]) if one.overrides == forked]
    assert proposal.bounded
    assert proposal.predicted is not None
    assert proposal.predicted.high > 1


@pytest.mark.parametrize("cause", ["threads", "optimizer", "loader"])
def test_pauses_that_no_turn_has_change_no_prediction(cause: str) -> None:
    """Half of the time is validation."""
    plain = concluded(cause)
    step = step_of(plain)
    assert step is not None
    pause = step.total * step.images
    pausing = concluded(cause, summary__between_seconds={"validation": pause})
    pausing.summary["ceilings"] |= {"between": {"validation": pause}}
    pausing.summary["overall_images_per_second"] = 1 / (2 * step.total)
    pausing.summary["findings"] = [finding.as_dict() for finding in diagnose(pausing)]
    plain.summary["between_seconds"] = {}
    plain.summary["overall_images_per_second"] = 1 / step.total
    plain.summary["findings"] = [finding.as_dict() for finding in diagnose(plain)]
    before, after = (
        {one.overrides: one.predicted.median for one in offered(record) if one.predicted and not one.bounded}
        for record in (plain, pausing)
    )
    shared = before.keys() & after.keys()
    assert shared
    assert {each: after[each] for each in shared} == pytest.approx({each: before[each] for each in shared}, rel=0.02)
