"""What is said of several ranks, and that the wait for one of them is no other cause's."""

from itertools import chain
from typing import Any

import pytest

from strobe.callbacks.columns import GAPS, PHASES
from strobe.diagnose.attribution import attribution
from strobe.diagnose.predict import step_of
from strobe.diagnose.rank import diagnose, verdict
from strobe.records.run import Record
from support.recorded import example
from support.straggling import BASE, Case, case, told

LATE = 0.25  # seconds


def record_of(made: Case, *ranks: int, world: int | None = None) -> Record:
    """A record of a training on these rows, of the ranks that left theirs; all of them where none is given."""
    rows = {rank: found for rank, found in made.rows.items() if rank in ranks or not ranks}
    record = example("straggler")
    mean = {name: sum(row[name] for row in rows[0].values()) / len(rows[0]) for name in ("total", *PHASES)}
    rate = 64 / (mean["total"])
    record.summary.update({"world_size": world or len(made.rows), "ranks": told(rows, world or len(made.rows))})
    record.summary.update({"step_seconds": mean, "between_seconds": dict.fromkeys(GAPS, 0.0), "callbacks": []})
    record.summary.update({"overall_images_per_second": rate, "cores_used": {}, "epoch_starts": None})
    record.summary["images_per_second"] = {"median": rate, "low": 0.98 * rate, "high": 1.02 * rate}
    return record


def said(made: Case, *ranks: int) -> str:
    record = record_of(made, *ranks)
    return verdict(record, diagnose(record))


def test_a_verdict_names_rank_place_and_what_training_would_be_without() -> None:
    found = said(case(lambda rank, step: LATE * (rank == 1)))
    assert found.startswith("Rank 1 waits for data 250 ms more than the other in 100% of steps: training would be 7.")
    assert found.endswith(") as fast without.")
    found = said(case(lambda rank, step: LATE * (rank == 1 and step % 5 == 2), ranks=4))
    assert found.startswith("Rank 1 waits for data 251 ms more than the others in 20% of steps: training")
    found = said(case(lambda rank, step: LATE * (rank in {2, 3}), ranks=4, phase="forward"))
    assert found.startswith("Ranks 2 and 3 take 250 ms longer than the others in the forward pass in 100% of steps: ")
    found = said(case(lambda rank, step: LATE * (rank == 0), phase="callbacks"))
    assert found.startswith("Rank 0 takes 250 ms longer than the other in Slow in 100% of steps: ")


def test_turns_growth_and_uneven_batches_are_told_apart() -> None:
    found = said(case(lambda rank, step: LATE * (step % 4 == rank), ranks=4, phase="forward"))
    assert found.startswith("Ranks take turns at being slow: in 100% of steps one of them takes 250 ms longer than ")
    found = said(case(lambda rank, step: LATE * (rank == 1 and step >= 60), phase="forward"))
    assert found.startswith("Rank 1 has become slow: since step ")
    found = said(case(elements=lambda rank, step: 1.5 + (step * 7 + rank * 3) % 5 / 5))
    assert found.startswith("The ranks' batches differ in size: the rank with the largest takes ")
    found = said(case(elements=lambda rank, step: 1.5 if rank == 1 else 1.0, ranks=4))
    assert found.startswith("Rank 1 gets batches 1.5 times as large as those of the others, and takes 1")


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("phase", ["data_wait", "forward", "callbacks", "optimizer"])
def test_neither_the_wait_nor_the_slow_rank_s_extra_work_is_another_cause(phase: str, slow: int) -> None:
    record = record_of(case(lambda rank, step: LATE * (rank == slow), phase=phase))
    if record.summary["ranks"]["owner"]:
        record.summary["ranks"]["owner"] = "callbacks/Slow 2"
    lingers = {"name": "Slow 2", "kind": "callback", "calls": 117, "longest": 0.3}
    record.summary["callbacks"] = [lingers | {"mean": record.summary["step_seconds"]["callbacks"]}]
    findings = diagnose(record)
    assert [finding.cause for finding in findings] == ["straggler"]
    step = step_of(record)
    assert step
    parts = {part.cause: part.seconds for part in attribution(record, step)}
    assert parts["straggler"] == pytest.approx(LATE, rel=0.05)
    assert parts["exchange"] == pytest.approx(1e-3)
    assert parts["computing"] + parts["optimizer"] == pytest.approx(BASE, rel=0.2)
    assert sum(parts.values()) == pytest.approx(step.total * step.images)


def test_a_cause_that_all_ranks_share_stays_one() -> None:
    record = record_of(case(lambda rank, step: LATE + 0.05 * (rank == 0)))
    assert [finding.cause for finding in diagnose(record)] == ["loader", "straggler"]


def test_a_rank_that_computes_longer_may_have_other_data() -> None:
    record = record_of(case(lambda rank, step: LATE * (rank == 1), phase="forward"))
    assert "the hardware or the data: exchange the ranks' shards to tell" in diagnose(record)[0].advice


def test_rank_0_alone_tells_what_is_not_known() -> None:
    record = record_of(case(lambda rank, step: LATE * (rank == 1)), 0)
    (finding,) = diagnose(record)
    assert finding.title == "Rank 0 waits 251 ms of each step for other ranks"
    assert "Rank 1 left no rows here: what it does is not known." in finding.evidence
    assert "Without it, training would be up to 8.1x as fast." in verdict(record, [finding])
    old: dict[str, Any] = record.summary | {"ranks": None}
    assert "Whether it waited for other ranks is not known: only rank 0 was" in verdict(
        Record(old), diagnose(Record(old))
    )


def test_a_missing_rank_and_missing_steps_are_told() -> None:
    made = case(lambda rank, step: LATE * (rank == 1), ranks=4)
    (finding, *_) = diagnose(record_of(made, 0, 1, 3))
    assert finding.title.startswith("Rank 1 waits")
    assert "Rank 2 left no rows here: what it does is not known." in finding.evidence
    made.rows[3] = dict(list(made.rows[3].items())[:63])
    (finding, *_) = diagnose(record_of(made))
    assert "All ranks have rows of 51% of the steps, and only these count." in finding.evidence


def test_of_ranks_that_all_have_rows_none_is_missed() -> None:
    """Ranks that exchange for long, of which one was killed a little before the others."""
    made = case(noise=0.05)
    for row in chain.from_iterable(found.values() for found in made.rows.values()):
        row.update({name: row[name] + 0.05 for name in ("total", "backward", "exposed_wait", "wait_backward")})
    made.rows[1] = dict(list(made.rows[1].items())[:110])
    record = record_of(made)
    assert 0 < (record.number("ranks", "coverage") or 0) < 1
    assert "straggler" not in [finding.cause for finding in diagnose(record)]
    record.summary["ranks"]["waits"] = None
    assert "Whether ranks waited for each other is not known" in verdict(record, diagnose(record))


def test_ranks_that_differ_by_chance_lead_to_no_finding() -> None:
    assert "straggler" not in [finding.cause for finding in diagnose(record_of(case(noise=0.3)))]
