"""Each rule finds its cause in the constructed example of that name, and is silent where the cause is not."""

import json
from typing import Any

import pytest

from strobe.diagnose.candidates import candidates
from strobe.diagnose.predict import step_of
from strobe.diagnose.promise import ENDANGERS
from strobe.diagnose.rank import all_rules, command, diagnose, verdict
from strobe.overrides import key_of
from strobe.records.run import Record
from support.recorded import CAUSES, RECORDED, damages, example, of, recorded

RULES = {rule.__name__ for rule in all_rules()}


def read_all(record: Record) -> None:
    findings = diagnose(record)
    candidates(record)
    assert bool(findings) == (step_of(record) is not None)
    assert verdict(record, findings)
    for finding in findings:
        assert 0 < finding.predicted_speedup.low <= finding.predicted_speedup.median <= finding.predicted_speedup.high
        assert command(record, finding.overrides).startswith("python train.py")


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert set(CAUSES) == RULES


@pytest.mark.parametrize("cause", CAUSES)
def test_the_example_of_a_cause_yields_it_first_and_findings_that_can_be_acted_on(cause: str) -> None:
    record = example(cause)
    findings = diagnose(record)
    assert findings[0].cause == cause
    assert (findings[0].predicted_speedup.median > 1) == (cause not in ("nothing", *ENDANGERS))
    for finding in findings:
        assert finding.cause in RULES
        assert finding.title
        assert not finding.title.endswith(".")
        assert finding.evidence.endswith(".")
        assert any(character.isdigit() for character in finding.evidence)
        assert finding.advice.endswith(".")
        assert all(record.has(key_of(override)) for override in finding.overrides)
        assert json.loads(json.dumps(finding.as_dict())) == finding.as_dict()
    changes = [finding.overrides for finding in findings if finding.overrides]
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_run_is_diagnosed_as_it_was(name: str) -> None:
    """Real summaries, made by ``record.py``: the rules find first what was injected, and no more than then."""
    record, injected = recorded(name)
    assert diagnose(record)[0].cause == injected
    assert [finding.cause for finding in diagnose(record)] == [finding["cause"] for finding in record.items("findings")]
    read_all(record)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_constructed_example_has_the_form_of_a_recorded_run(cause: str) -> None:
    reals, made = [recorded(name)[0].summary for name in RECORDED], example(cause).summary
    assert made.keys() <= set().union(*reals)
    for group in ("environment", "steps", "step_seconds", "images_per_second", "epoch_starts", "ceilings", "ranks"):
        assert (made.get(group) or {}).keys() <= set().union(*(real.get(group) or {} for real in reals)), group


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 5))])
@pytest.mark.parametrize("cause", CAUSES)
def test_no_missing_key_and_no_foreign_value_ever_raises(cause: str, turn: int) -> None:
    """One way of damage at each place, the other ways of those that many examples share in the others."""
    record = example(cause)
    parts = {"summary": record.summary, "config": record.config}
    for place in damages(parts, (None, "text", 0, -1), turn + CAUSES.index(cause)):
        if "." in place:
            try:
                read_all(record)
            except Exception as error:
                raise AssertionError(place) from error
    assert record == example(cause)


TORCHS = {
    "phase": "forward",
    "file": "train.py",
    "line": 3,
    "function": "draw",
    "library": "",
    "share": 0.9,
    "python": 0.0,
}
SILENT: dict[str, list[dict[str, Any]]] = {
    "loader": [
        {"summary__step_seconds__data_wait": 0.004},  # not notable
        {  # no more than noise
            "summary__images_per_second": {"median": 169.0, "low": 50.0, "high": 290.0},
            "summary__step_seconds__data_wait": 0.03,
        },
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
    "epoch_start": [
        {"config__engine__persistent_workers": False},  # new workers explain it
        {"summary__epoch_starts": {"count": 0, "data_wait": None}},
        {"summary__epoch_starts": {"count": 4, "data_wait": 0.03}},
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
    "library_call": [
        {"summary__lines": [{"phase": "forward", "library": "sklearn", "share": 0.05}]},  # not notable
        {"summary__lines": [{"phase": "forward", "library": "", "share": 0.9}]},  # calls torch
        {"summary__lines": [{"phase": "backward", "library": "sklearn", "share": 0.9}]},
        {"summary__lines": [{"phase": "forward", "share": 0.9}]},  # an old record
        {"summary__accelerator": "cuda"},  # whose host runs ahead
    ],
    "outside_torch": [
        {"summary__lines": [TORCHS | {"torch": False, "share": 0.05}]},  # not notable
        {"summary__lines": [TORCHS | {"torch": True}]},
        {"summary__lines": [TORCHS]},  # an old record
        {"summary__lines": [TORCHS | {"torch": False, "python": 0.9}]},  # Python's own
        {"summary__costliest": {"forward": {"mm": 0.97}}},  # which leaves no time for that
    ],
    "unused_gradients": [{"summary__unused_gradients": 0.05}, {"summary__unused_gradients": None}],
    "repeated_forward": [
        {"summary__repeated": {"name": "Net", "calls": 2, "forward": 0.05, "backward": 0.05}},  # not notable
        {"summary__repeated": None},
        {"summary__accelerator": "cuda"},  # whose host runs ahead
    ],
    "constant_results": [{"summary__constant__forward": 0.01, "summary__constant__backward": 0.0}],
    "unused_results": [{"summary__unused": None}, {"summary__accelerator": "cuda"}],
    "zeros": [{"summary__sparse": None}, {"summary__sparse": {"name": "GCN", "shape": [9, 9], "share": 0.99}}],  # old
    "alike_rows": [{"summary__alike": None}, {"summary__accelerator": "cuda"}],
    "denormals": [{"summary__denormal": None}, {"summary__accelerator": "cuda"}],
    "child_processes": [
        {"summary__machine__delayed": 0.05},  # not notable
        {"summary__machine__children": 0.05},
        {"summary__num_workers": 2},  # which have their own cause
        {"summary__world_size": 2},  # each rank starts some
    ],
    "oversubscription": [
        {"summary__machine__delayed": 0.05},  # not notable
        {"summary__machine__children": 0.5},  # workers', or other processes'
        {"summary__machine__others": 0.5},
        {"summary__machine__threads": [{"name": "loader 0", "cores": 0.9}]},  # Python's own
        {"summary__threads": 64},  # torch's own
        {"summary__accelerator": "cuda"},  # whose host computes little
    ],
    "dtype": [{"summary__dtype": None}, {"summary__accelerator": "cuda"}],
    "product_order": [{"summary__order": None}, {"summary__accelerator": "cuda"}],
    "fft_length": [{"summary__length": None}, {"summary__accelerator": "cuda"}],
    "slice_writes": [{"summary__sliced": None}, {"summary__accelerator": "cuda"}],
    "causal_mask": [{"summary__causal": None}, {"summary__accelerator": "cuda"}],
    "variance": [{"summary__variance": None}, {"summary__accelerator": "cuda"}],
    "sparse_layout": [{"summary__layout": None}, {"summary__accelerator": "cuda"}],
    "copied_again": [{"summary__carried": None}, {"summary__accelerator": "cuda"}],
    "large_temporary": [{"summary__broadcast": None}, {"summary__accelerator": "cuda"}],
    "unfused_attention": [{"summary__attention": None}, {"summary__accelerator": "cuda"}],
    "unbatched_loop": [
        {"summary__loop": None},
        {"summary__loop": {"optimizer": 0.9, "rounds": 60}},  # an update has its own cause
        {"summary__loop__forward": 0.02, "summary__loop__backward": 0.0},
    ],
    "padding": [{"summary__padding": 0.05}, {"summary__padding": None}],
    "recomputing": [
        {"summary__lines": [{"phase": "backward", "library": "torch.utils.checkpoint", "share": 0.1}]},  # not notable
        {"summary__lines": [{"phase": "backward", "library": "", "share": 0.9}]},
        {"summary__lines": [{"phase": "forward", "library": "torch.utils.checkpoint", "share": 0.9}]},
        {"summary__accelerator": "cuda"},  # whose backward pass is in another thread
    ],
    "python_code": [
        {"summary__lines": [{"phase": "forward", "share": 0.9, "python": 0.05}]},  # not notable
        {"summary__lines": [{"phase": "forward", "share": 0.9}]},  # an old record, or a system that does not tell
        {"summary__lines": [{"phase": "forward", "library": "copy", "share": 0.9, "python": 0.9}]},  # a library's call
        {"summary__lines": [{"phase": "optimizer", "share": 0.9, "python": 0.9}]},  # an update has its own cause
        {"summary__garbage_seconds": 0.06},  # a collection holds the lock, too
        {"summary__accelerator": "cuda"},
        {  # another thread holds it
            "summary__machine__threads": [{"name": "watcher", "cores": 0.9}],
            "summary__main_used": dict.fromkeys(("forward", "backward", "optimizer", "transfer", "other"), 0.5),
        },
    ],
    "loop_code": [
        {"config__loop": False},  # the Trainer's loop, whose callbacks have causes of their own
        {"summary__accelerator": "cuda"},  # where it waits for the device
        {"summary__lines": [{"phase": "other", "library": "sklearn", "share": 0.9}]},  # a library's call
        {"summary__uneven": {"phase": "other", "extra_seconds": 0.038, "steps": 9, "usual_seconds": 0.04}},
    ],
    "small_operations": [
        {"summary__operations__count": 193 * 400},  # as a deep model has
        {"summary__operations__forward": 1e-6, "summary__operations__backward": 1e-6},  # of 6,000
        {"summary__accelerator": "cuda"},  # whose host runs ahead
        {"summary__operations": None},  # an old record
    ],
    "memory_layout": [{"summary__ceilings__intervals": {"model": [300.0, 570.0]}}, {"summary__ceilings__model": None}],
    "threads": [{"summary__ceilings__intervals": {"model": [100.0, 270.0]}}],
    "upsampled": [
        {"summary__image_size__stored": [200, 180]},
        {"summary__image_size": None, "summary__ceilings__image_size": None},  # nobody knows
    ],
    "straggler": [
        {"summary__ranks__pattern": None},  # chance
        {"summary__ranks": None},  # an old record
    ],
    "swapping": [
        {"summary__machine__swapped_bytes": 10_000_000},  # in a quarter of a minute
        {"summary__machine__choked": 0.01},  # nobody waited
        {"summary__machine__choked": None, "summary__machine__idle": 0.01},
    ],
    "page_faults": [
        {"summary__page_faults__count": 900.0},  # something else is what the kernel does
        {"summary__page_faults__kernel": 0.02},
        {"summary__environment__default_malloc": False},  # it has been told to keep memory, and does not
        {"summary__accelerator": "cuda"},  # whose memory is not the host's
        {"summary__page_faults": None},  # an old record
    ],
    "growing_memory": [
        {"summary__memory_growth__workers_memory__steady": False},  # a cache that has filled
        {"summary__memory_growth__workers_memory__last_bytes": 4.1e8},
        {"summary__environment__memory_free_bytes": 4e12},  # it lasts for more than a day
    ],
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
