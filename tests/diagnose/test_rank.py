"""Findings in order and without symptoms of each other, the verdict, and a command that can be run as it stands."""

import shlex
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from strobe.app.config.register import register
from strobe.diagnose.rank import EXPLAINED, all_rules, command, diagnose, verdict
from strobe.records.run import Record
from support.places import ROOT
from support.recorded import CAUSES, example

CALLBACK = {"name": "Audit", "kind": "callback", "mean": 0.02, "longest": 0.05, "calls": 180}


def causes(record: Record) -> list[str]:
    return [finding.cause for finding in diagnose(record)]


def test_the_greatest_gain_comes_first() -> None:
    record = example("validation", summary__callbacks=[CALLBACK])
    assert causes(record) == ["validation", "callback"]
    medians = [finding.predicted_speedup.median for finding in diagnose(record)]
    assert medians == sorted(medians, reverse=True)


def test_little_gain_is_no_finding() -> None:
    assert causes(example("nothing", summary__callbacks=[CALLBACK | {"mean": 0.005}])) == ["callback"]
    assert causes(example("nothing", summary__callbacks=[CALLBACK | {"mean": 0.002}])) == ["nothing"]


def test_a_gain_within_noise_is_no_finding_unless_the_run_lost_the_time() -> None:
    drifted = {"summary__ceilings__drift": 0.6}
    assert causes(example("memory_layout", **drifted)) == ["nothing"]
    assert causes(example("validation", **drifted)) == ["validation"]


def with_batches(record: Record, rate: float) -> Record:
    """The same run, with a measured batch of twice the size that computes so many images/s."""
    size = record.config["data"]["batch_size"] * 2
    entry = {"overrides": [f"data.batch_size={size}"], "side": "model", "cpu_seconds": 0.01, "images_per_step": size}
    record.summary["ceilings"]["alternatives"].append(entry | {"rate": rate, "interval": [rate * 0.98, rate * 1.02]})
    return record


def test_what_a_cause_explains_is_not_listed_beside_it() -> None:
    assert causes(with_batches(example("nothing"), 900.0)) == ["small_batch"]
    assert causes(with_batches(example("loader"), 900.0)) == ["loader"]
    fewer_updates = with_batches(example("optimizer", summary__ceilings__alternatives=[]), 900.0)
    assert causes(fewer_updates) == ["small_batch"]


def test_a_stronger_symptom_is_not_hidden_by_a_weaker_cause() -> None:
    waiting = with_batches(example("nothing"), 900.0)
    waiting.summary["step_seconds"]["data_wait"] += 0.008
    waiting.summary["step_seconds"]["total"] += 0.008
    assert causes(waiting) == ["small_batch", "loader"]


@pytest.mark.parametrize("cause", ["small_batch", "memory_layout", "optimizer"])
def test_threads_without_cores_explain_slow_computing(cause: str) -> None:
    record = example(cause, summary__environment__usable_cores=2, summary__threads=16)
    fastest = {"overrides": ["threads=2"], "side": "model", "rate": 4000.0, "interval": [3900.0, 4100.0]}
    record.summary["ceilings"]["alternatives"].append(fastest)
    assert causes(record) == ["threads"]


def test_workers_that_hurt_explain_that_they_start_slowly() -> None:
    record = example("workers_restart", summary__environment__usable_cores=1)
    assert causes(record) == ["workers_restart"]
    without = {"overrides": ["engine.num_workers=0"], "side": "loader", "rate": 90000.0, "interval": [89000.0, 91000.0]}
    record.summary["ceilings"]["alternatives"].append(without | {"cpu_seconds": 1e-5})
    record.summary["ceilings"]["model"] = 4000.0
    record.summary["ceilings"]["intervals"]["model"] = [3900.0, 4100.0]
    assert causes(record) == ["workers_hurt"]


def test_what_explains_and_what_is_explained_are_rules() -> None:
    rules = {rule.__name__ for rule in all_rules()}
    assert {name for symptom, cause, _ in EXPLAINED for name in (symptom, cause)} <= rules


@pytest.mark.parametrize(
    ("cause", "changes", "begin"),
    [
        (
            "loader",
            {},
            "61% of each step waits for data (measured 169, loader ceiling 280, model ceiling 430 images/s). "
            "Predicted: engine.num_workers=2 -> ",
        ),
        ("loader", {"summary__status": "failed"}, "The run failed; until then: 61% of each step waits"),
        ("callback", {"summary__ceilings": None}, "WeightAudit takes 28% of each step. Predicted: ~callbacks.audit"),
        (
            "nothing",
            {"summary__efficiency": None, "summary__ceilings": {"reason": "ceilings=false."}},
            "No cause found: 3% of each step waits for data; the ceilings were not measured (ceilings=false).",
        ),
    ],
)
def test_a_verdict_says_cause_ceilings_and_prediction(cause: str, changes: dict[str, Any], begin: str) -> None:
    record = example(cause, **changes)
    findings = diagnose(record)
    text = verdict(record, findings)
    assert text.startswith(begin)
    assert cause != "loader" or f"-> {findings[0].predicted_speedup.median:.1f}x (" in text


def test_a_verdict_tells_no_limit_below_the_measured_rate() -> None:
    def told(joint: float) -> str:
        record = example("callback", summary__ceilings__joint=joint)
        return verdict(record, diagnose(record)).partition(" Predicted")[0]

    assert told(400.0).endswith("model ceiling 430, together at most 400 images/s).")
    assert told(50.0).endswith("model ceiling 430 images/s).")  # the run was faster
    assert told(5000.0).endswith("model ceiling 430 images/s).")  # the model is slower


def test_a_verdict_without_anything_to_run_says_how_much_there_is_to_gain() -> None:
    record = example("nothing", summary__callbacks=[CALLBACK])
    (finding,) = diagnose(record)
    text = verdict(record, [finding])
    assert text.endswith(f". Without it training would be up to {finding.predicted_speedup.high:.2f}x as fast.")
    assert "Predicted" not in text


@pytest.mark.parametrize(
    ("efficiency", "title", "told"),
    [
        (0.6, "No cause found", "60% of what the model alone reaches (430 images/s). The largest part of a step is"),
        (0.9, "Nothing to fix", "90% of what the model alone reaches (430 images/s)."),
        (1.2, "Nothing to fix", "at its ceiling, what the model alone reaches (430 images/s)."),
        (None, "No cause found", "the ceilings are not known. The largest part of a step is the backward pass, 54%."),
    ],
)
def test_nothing_is_only_called_fine_near_a_ceiling(efficiency: float | None, title: str, told: str) -> None:
    (finding,) = diagnose(example("nothing", summary__efficiency=efficiency))
    assert finding.title == title
    assert told in finding.evidence


def test_scaling_on_a_cpu_is_named_where_it_takes_much() -> None:
    slow = example("nothing")
    slow.summary["step_seconds"] |= {"transfer": 0.02, "forward": 0.0045}
    assert diagnose(slow)[0].evidence.endswith("26% of each step scales and augments images (data.augment).")
    slow.config["data"]["augment"] = False
    assert diagnose(slow)[0].evidence.endswith("26% of each step scales images.")
    assert "scales" not in diagnose(example("nothing"))[0].evidence


def test_a_long_first_step_is_told_apart() -> None:
    record = example("nothing", summary__first_step_seconds=12.0)
    assert causes(record) == ["nothing"]
    assert "The first step took 12 s" in verdict(record, diagnose(record))
    assert "The first step took" not in verdict(example("nothing"), diagnose(example("nothing")))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("failed", "The run failed before a step was measured."),
        ("interrupted", "The run was interrupted before a step was measured."),
        ("completed", "No step was measured."),
    ],
)
def test_without_a_step_the_verdict_says_so(status: str, text: str) -> None:
    record = Record({"schema": 1, "status": status, "step_seconds": {"total": None}, "ceilings": None})
    findings = diagnose(record)
    assert findings == []
    assert verdict(record, findings) == text


@pytest.mark.parametrize(
    ("own", "overrides", "line"),
    [
        ([], ["loader=rasterio"], "loader=rasterio"),
        (["data=eurosat", "loader=skimage", "seed=1"], ["loader=rasterio"], "data=eurosat loader=rasterio seed=1"),
        (["hydra.run.dir=/tmp/x", "seed=1"], [], "seed=1"),
        (["seed=1", "seed=2"], ["seed=3"], "seed=3"),
        (["++data.batch_size=8"], ["data.batch_size=16"], "++data.batch_size=16"),
        (["+callbacks.a._target_=A", "+callbacks.a.x=1", "+callbacks.ab.y=B"], ["~callbacks.a"], "+callbacks.ab.y=B"),
        (["seed=1"], ["~callbacks.a"], "seed=1 '~callbacks.a'"),
        (["data.bands=[3,2,1]"], ["data.root=/my tiles"], "'data.bands=[3,2,1]' 'data.root=/my tiles'"),
    ],
)
def test_a_command_replaces_what_the_run_was_given(own: list[str], overrides: list[str], line: str) -> None:
    assert command(Record({"schema": 1, "overrides": own}), overrides) == f"python train.py {line}".rstrip()


@pytest.mark.parametrize("cause", CAUSES)
def test_hydra_composes_what_is_to_be_copied(cause: str) -> None:
    record = example(cause)
    finding = diagnose(record)[0]
    program, script, *given = shlex.split(command(record, finding.overrides))
    assert (program, script) == ("python", "train.py")
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        cfg = compose("config", given)
    for key, value in (text.split("=") for text in finding.overrides if "=" in text and "." in text):
        chosen: Any = cfg
        for name in key.split("."):
            chosen = chosen[name]
        assert ("null" if chosen is None else str(chosen).lower()) == value
