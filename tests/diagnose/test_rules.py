"""Each rule finds its cause in the recorded example of that name, and is silent where the cause is not."""

import copy
from typing import Any

import pytest
from recorded import CAUSES, damages, example

from strobe.diagnose.candidates import candidates
from strobe.diagnose.finding import Finding
from strobe.diagnose.rank import all_rules, command, diagnose, verdict
from strobe.diagnose.record import Record

RULES = {rule.__name__: rule for rule in all_rules()}


def of(cause: str, record: Record) -> list[Finding]:
    found = RULES[cause](record)
    return [found] if isinstance(found, Finding) else found or []


def read_all(record: Record) -> None:
    findings = diagnose(record)
    candidates(record)
    assert findings
    assert verdict(record, findings)
    for finding in findings:
        assert 0 < finding.predicted_speedup.low <= finding.predicted_speedup.median <= finding.predicted_speedup.high
        assert command(record, finding.overrides).startswith("python train.py")


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert RULES.keys() == set(CAUSES)


@pytest.mark.parametrize("cause", CAUSES)
def test_the_example_of_a_cause_yields_it_first(cause: str) -> None:
    first = diagnose(example(cause))[0]
    assert first.cause == cause
    assert (first.predicted_speedup.median > 1) == (cause != "nothing")


@pytest.mark.parametrize("cause", CAUSES)
def test_texts_are_whole_and_carry_numbers(cause: str) -> None:
    for finding in diagnose(example(cause)):
        assert finding.cause in RULES
        assert finding.title
        assert not finding.title.endswith(".")
        assert finding.evidence.endswith(".")
        assert any(character.isdigit() for character in finding.evidence)
        assert finding.advice.endswith(".")


@pytest.mark.parametrize("cause", CAUSES)
def test_overrides_exist_for_the_run(cause: str) -> None:
    record = example(cause)
    for finding in diagnose(record):
        for override in finding.overrides:
            assert record.has(override.lstrip("~").partition("=")[0])


@pytest.mark.parametrize("cause", CAUSES)
def test_a_rule_changes_nothing_in_the_record(cause: str) -> None:
    record = example(cause)
    before = copy.deepcopy(record)
    read_all(record)
    assert record == before


@pytest.mark.parametrize("cause", CAUSES)
def test_no_missing_key_and_no_foreign_value_ever_raises(cause: str) -> None:
    record = example(cause)
    for place in damages({"summary": record.summary, "config": record.config}, (None, "text", 0, -1)):
        if "." in place:
            try:
                read_all(record)
            except Exception as error:
                raise AssertionError(place) from error
    assert record == example(cause)


SILENT: dict[str, list[dict[str, Any]]] = {
    "loader": [
        {"summary__step_seconds__data_wait": 0.004},  # not notable
        {"summary__images_per_second": {"median": 169.0, "low": 50.0, "high": 290.0}},  # no more than noise
    ],
    "workers_hurt": [
        {"summary__environment__usable_cores": 16},  # cores for all
        {"summary__ceilings__alternatives": []},  # fewer were not measured
        {"summary__num_workers": 0},
    ],
    "workers_restart": [
        {"config__engine__persistent_workers": True},
        {"summary__epoch_starts": {"count": 0, "data_wait": None}},  # one epoch
        {"summary__epoch_starts": {"count": 4, "data_wait": 0.03}},  # an epoch starts like any step
        {"summary__ceilings__loader": 50.0},  # so long takes a first batch, whoever loads it
    ],
    "small_batch": [
        {"summary__ceilings__intervals": {"model": [240.0, 440.0]}},  # no faster than noise
        {"summary__ceilings__alternatives": []},
        {"config__data__batch_size": 32},  # larger ones were not measured
    ],
    "optimizer": [{"summary__step_seconds__optimizer": 0.002}],
    "callback": [{"summary__callbacks": []}],
    "logging": [
        {"summary__callbacks": [{"name": "CSVLogger", "kind": "logger", "mean": 1e-5, "longest": 0, "calls": 1}]}
    ],
    "checkpoint": [
        {"summary__callbacks": [{"name": "Audit", "kind": "callback", "mean": 1.0, "longest": 1, "calls": 9}]}
    ],
    "memory_layout": [{"summary__ceilings__intervals": {"model": [300.0, 570.0]}}, {"summary__ceilings__model": None}],
    "threads": [{"summary__ceilings__intervals": {"model": [100.0, 270.0]}}, {"summary__ceilings__alternatives": None}],
    "validation": [{"summary__between_seconds__validation": 0.002}],
    "first_step": [
        {"config__model__compile": False},
        {"summary__first_step_seconds": 0.1},
        {"summary__steps__measured": 100_000},  # a long run
        {"summary__ceilings__alternatives": []},
    ],
}


@pytest.mark.parametrize(("cause", "changes"), [(cause, changes) for cause in SILENT for changes in SILENT[cause]])
def test_a_rule_is_silent_without_its_symptom(cause: str, changes: dict[str, Any]) -> None:
    assert of(cause, example(cause))
    assert not of(cause, example(cause, **changes))


def test_every_rule_but_nothing_is_silent_on_a_run_without_a_fault() -> None:
    assert [finding.cause for finding in diagnose(example("nothing"))] == ["nothing"]
    assert [cause for cause in RULES if of(cause, example("nothing"))] == ["nothing"]


def test_loader_takes_the_best_measured_remedy() -> None:
    assert of("loader", example("loader"))[0].overrides == ("engine.num_workers=2",)
    few = example("loader", summary__environment__usable_cores=1)
    assert of("loader", few)[0].overrides == ("loader=tifffile",)  # two workers have no cores
    full = example("loader", summary__environment__shm_free_bytes=1_000_000)
    assert of("loader", full)[0].overrides == ("loader=tifffile",)  # nor room for their batches


def test_loader_without_measurements_says_how_far_workers_may_carry() -> None:
    finding = of("loader", example("loader", summary__ceilings__alternatives=[]))[0]
    assert finding.overrides[0].startswith("engine.num_workers=")
    measured = of("loader", example("loader"))[0].predicted_speedup
    assert finding.predicted_speedup.high - finding.predicted_speedup.low > measured.high - measured.low


def test_loader_without_a_remedy_names_what_is_full() -> None:
    record = example("loader", summary__ceilings__alternatives=[], summary__environment__usable_cores=2)
    record.summary["num_workers"], record.summary["ceilings"]["cpu_seconds"]["loader"] = 2, 2 / 280
    finding = of("loader", record)[0]
    assert finding.overrides == ()
    assert "More workers do not fit" in finding.advice


def test_uneven_workers_get_deeper_queues() -> None:
    record = example("loader", summary__num_workers=2, summary__ceilings__loader=5000.0)
    record.summary["ceilings"]["intervals"]["loader"] = [4900.0, 5100.0]
    assert of("loader", record)[0].overrides == ("engine.prefetch_factor=4",)


def test_the_knee_not_the_largest_batch() -> None:
    record = example("small_batch")
    entries = record.summary["ceilings"]["alternatives"]
    entries.append(entries[0] | {"overrides": ["data.batch_size=64"], "rate": 440.0, "interval": [431.0, 449.0]})
    assert of("small_batch", record)[0].overrides == ("data.batch_size=32",)


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
    assert finding.title.startswith(name)
    assert finding.overrides == overrides


def test_the_interval_of_logging_makes_its_cost_a_hundredth() -> None:
    record = example("logging")
    key, _, every = of("logging", record)[0].overrides[0].partition("=")
    cost, total = record.summary["callbacks"][0]["mean"], record.summary["step_seconds"]["total"]
    assert key == "trainer.log_every_n_steps"
    assert cost / int(every) <= 0.01 * total < cost


@pytest.mark.parametrize(("batches", "value"), [(45, "null"), (100_000, "200")])
def test_checkpoints_are_saved_seldom_enough_or_by_the_epoch(batches: int, value: str) -> None:
    record = example("checkpoint", summary__batches_per_epoch=batches)
    assert of("checkpoint", record)[0].overrides == (f"checkpoint.every_n_steps={value}",)


@pytest.mark.parametrize(
    ("interval", "epochs", "longest", "overrides"),
    [
        (5, 1, 5, ("trainer.val_check_interval=null", "trainer.check_val_every_n_epoch=2")),
        (0.01, 1, 5, ("trainer.val_check_interval=null",)),
        (None, 1, 100, ("trainer.check_val_every_n_epoch=11",)),
        (None, 2, 100, ("trainer.check_val_every_n_epoch=22",)),
        (None, 1, 5, ("trainer.check_val_every_n_epoch=5",)),
        (None, 1, 1, ()),
        (50, None, 5, ("trainer.val_check_interval=550",)),
    ],
)
def test_validation_is_made_as_rare_as_needed(interval: Any, epochs: Any, longest: int, overrides: Any) -> None:
    record = example(
        "validation",
        config__trainer__val_check_interval=interval,
        config__trainer__check_val_every_n_epoch=epochs,
        config__trainer__max_epochs=longest,
    )
    assert of("validation", record)[0].overrides == overrides


def test_checkpoints_between_epochs_are_written_as_seldom_as_it_takes() -> None:
    finding = of("epoch_checkpoint", example("epoch_checkpoint"))[0]
    every = int(finding.overrides[0].removeprefix("checkpoint.every_n_epochs="))
    record = example("epoch_checkpoint")
    between = record.number("between_seconds", "checkpoints") or 0.0
    assert 1 < every <= record.config["trainer"]["max_epochs"]
    total = 32 / (record.number("overall_images_per_second") or 0.0)
    assert finding.predicted_speedup.median == pytest.approx(total / (total - between * (1 - 1 / every)), rel=0.01)
    assert not of("epoch_checkpoint", example("epoch_checkpoint", summary__between_seconds__checkpoints=0.001))
