"""What is tried next: what a record's findings prescribe, with what goes with it, then what is only bounded."""

from typing import Any

import pytest

from strobe.app.config.schema import OVER
from strobe.app.tuning import proposals as module
from strobe.app.tuning.proposals import DIMENSIONS, Proposal, advice, proposals
from strobe.diagnose.rank import diagnose
from strobe.overrides import key_of
from strobe.records.run import Record
from support.recorded import CAUSES, example


def concluded(cause: str, **changes: Any) -> Record:
    """The example with its findings, as a run leaves it behind."""
    record = example(cause, **changes)
    findings = [finding.as_dict() for finding in diagnose(record)]
    return Record(record.summary | {"findings": findings}, record.config)


def offered(record: Record, over: list[str] | None = None, budget: float = 600.0) -> list[Proposal]:
    return proposals(record, over, budget=budget)


@pytest.mark.parametrize("cause", CAUSES)
def test_each_finding_is_a_proposal_or_advice(cause: str) -> None:
    record = concluded(cause)
    prescribed = {override for proposal in offered(record) if not proposal.bounded for override in proposal.overrides}
    for found in record.items("findings"):
        searched = all(key_of(override) in DIMENSIONS for override in found["overrides"])
        if found["overrides"] and searched:
            assert set(found["overrides"]) <= prescribed
        elif found["overrides"]:
            assert any(found["title"] in line for line in advice(record))


@pytest.mark.parametrize("cause", CAUSES)
def test_prescriptions_come_first_as_they_were_predicted(cause: str) -> None:
    record = concluded(cause)
    offers = offered(record)
    assert [proposal.bounded for proposal in offers] == sorted(proposal.bounded for proposal in offers)
    prescribed = [
        (found["title"], found["predicted_speedup"]["median"])
        for found in record.items("findings")
        if found["overrides"] and all(key_of(override) in DIMENSIONS for override in found["overrides"])
    ]
    told = [(one.why, one.predicted and one.predicted.median) for one in offers]
    assert told[: len(prescribed)] == prescribed
    assert len({frozenset(proposal.overrides) for proposal in offers}) == len(offers)


def test_what_was_measured_and_is_no_finding_is_tried_too() -> None:
    record = concluded("loader")
    loaders = [proposal.overrides for proposal in offered(record, ["loader"]) if not proposal.bounded]
    assert len(loaders) > 1
    assert len(loaders) == len([entry for entry in record.alternatives("loader") if "loader" in entry.changes])


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


@pytest.mark.parametrize("name", [name for name in OVER if name != "prefetch"])
def test_only_what_is_asked_for_and_something_of_each(name: str) -> None:
    found = [proposal for cause in CAUSES for proposal in offered(concluded(cause), [name])]
    assert found
    assert all(proposal.dimensions == {name} for proposal in found)


def test_workers_that_are_waited_for_may_keep_more_ready() -> None:
    record = concluded("loader", summary__num_workers=1, config__engine__num_workers=1)
    factor = record.whole("engine.prefetch_factor") or 0
    assert [one.overrides for one in offered(record, ["prefetch"])] == [(f"engine.prefetch_factor={2 * factor}",)]


def test_of_a_part_of_a_prescription_only_the_most_is_known() -> None:
    (proposal,) = offered(concluded("transfer"), ["pinning"])
    assert proposal.overrides == ("engine.pin_memory=true",)
    assert proposal.bounded


def test_ways_of_loading_are_tried_where_steps_wait_and_only_there() -> None:
    waiting = [proposal for proposal in offered(concluded("loader")) if proposal.bounded]
    assert {"engine=resident"} <= {override for proposal in waiting for override in proposal.overrides}
    assert all(proposal.predicted and proposal.predicted.high > 1.03 for proposal in waiting)
    assert not [proposal for proposal in offered(concluded("nothing")) if proposal.bounded]


def test_a_set_that_takes_long_to_load_is_not_made_resident() -> None:
    record = concluded("loader", summary__train_images=10_000_000)
    assert not any("engine=resident" in proposal.overrides for proposal in offered(record))
    assert any("engine=resident" in proposal.overrides for proposal in offered(record, budget=1e9))


def test_spdl_is_tried_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert not any("engine=spdl" in proposal.overrides for proposal in offered(concluded("loader")))


def test_compiling_is_tried_when_it_is_asked_for() -> None:
    record = concluded("nothing")
    assert not any("model.compile=true" in proposal.overrides for proposal in offered(record))
    (proposal,) = offered(record, ["compile"])
    assert proposal.overrides == ("model.compile=true",)


def test_a_run_without_a_measured_step_has_none() -> None:
    assert offered(Record({"schema": 1, "status": "failed"})) == []
