"""What a step does for nothing, or more often than it has to: what is said of it."""

from collections import defaultdict

import pytest

from strobe.diagnose.attribution import attribution
from strobe.diagnose.predict import step_of
from strobe.diagnose.promise import bound
from strobe.diagnose.rank import diagnose
from strobe.records.run import Record
from support.recorded import example, of


def test_what_is_wasted_is_told_with_its_line_and_size() -> None:
    (twice,) = of("repeated_forward", example("repeated_forward"))
    assert twice.title == "A step computes the same thing 2 times"
    assert "Most of it is in training_step, at train.py:57." in twice.evidence
    (sparse,) = of("zeros", example("zeros"))
    assert "99.7% of the 3,600 x 3,600 numbers of a matrix are zeros" in sparse.evidence
    (alike,) = of("alike_rows", example("alike_rows"))
    assert "98% of the rows that a layer computes equal an earlier one. Most of it is in encode" in alike.evidence
    (denormals,) = of("denormals", example("denormals"))
    assert denormals.title == "Denormal numbers cost 63% of each step"
    assert "Most of it is in forward, at train.py:31." in denormals.evidence
    (double,) = of("dtype", example("dtype"))
    assert "Computing in float64 costs" in double.title
    (transforms,) = of("fft_length", example("fft_length"))
    assert "Those of 47,999 numbers take longer than those of 48,000" in transforms.evidence
    (large,) = of("large_temporary", example("large_temporary"))
    assert "of each step makes and reduces a tensor of 134 MB" in large.title
    assert "4,096 x 256 x 32 numbers" in large.evidence
    (attention,) = of("unfused_attention", example("unfused_attention"))
    assert "For its 8 x 512 x 512 weights" in attention.evidence
    (loop,) = of("unbatched_loop", example("unbatched_loop"))
    assert loop.title == "256 rounds of a loop could be computed at once"


@pytest.mark.parametrize(("cause", "phase"), [("single_thread", "forward"), ("nothing", "backward")])
def test_the_costliest_operations_of_a_phase_are_named_where_no_line_is_to_blame(cause: str, phase: str) -> None:
    shares = {"bernoulli_": 0.5, "addmm": 0.11, "gelu": 0.09}
    record = example(cause, summary__efficiency=0.5)
    record.summary["costliest"] = {phase: shares}
    named = " Costliest there: bernoulli_ (50%) and addmm (11%)."
    assert named in of(cause, record)[0].evidence
    record.summary["accelerator"] = "cuda"  # whose host only launches them
    assert named not in "".join(one.evidence for one in of(cause, record))


@pytest.mark.parametrize("cause", ["single_thread", "small_operations"])
def test_what_a_loop_of_operations_explains_is_not_told_beside_it(cause: str) -> None:
    record = example(cause)
    record.summary["loop"] = {"forward": 0.9, "rounds": 64}
    assert of(cause, record)
    found = [one.cause for one in diagnose(record)]
    assert "unbatched_loop" in found
    assert cause not in found


def test_a_function_that_computes_nothing_but_constants_counts_with_its_python_code() -> None:
    record = example("constant_results", summary__constant={"forward": 0.05, "functions": []})
    assert not of("constant_results", record)
    where = {"file": "/home/me/train.py", "function": "encode"}
    record.summary["constant"] = {"forward": 0.05, "functions": [where]}
    record.summary["lines"] = [{**where, "phase": "forward", "line": 3, "share": 0.6, "library": ""}]
    assert of("constant_results", record)


def _parts(record: Record) -> dict[str, float]:
    """Seconds of a step by cause."""
    step, found = step_of(record), defaultdict[str, float](float)
    assert step is not None
    for part in attribution(record, step):
        found[part.cause] += part.seconds
    return found


def test_what_the_training_process_wastes_while_it_loads_is_part_of_the_wait() -> None:
    record = example("loader", summary__num_workers=0)
    whole = _parts(record)
    record.summary["constant"] = {"data_wait": 0.25, "functions": []}
    parts = _parts(record)
    assert parts["constant_results"] == pytest.approx(0.25 * record.summary["step_seconds"]["data_wait"])
    assert parts["loader"] + parts["constant_results"] == pytest.approx(whole["loader"])


@pytest.mark.parametrize(("cause", "workers"), [("loader", 2), ("loader", 0), ("workers_hurt", 2)])
def test_workers_that_send_what_a_batch_was_cut_out_of_are_told(cause: str, workers: int) -> None:
    record = example(cause)
    record.summary["num_workers"] = workers
    record.summary.update(batch_bytes=1e6, batch_storage_bytes=7.5e7)
    found = [one for one in diagnose(record) if ".clone()" in one.advice]
    assert bool(found) == bool(workers)
    assert all("Workers send 75 MB for each batch of 1 MB" in one.evidence for one in found)


@pytest.mark.parametrize(("rows", "told"), [(0.99, "about 5.0x as fast, perhaps more"), (0.1, "up to 5.0x as fast")])
def test_gradients_of_unused_rows_cost_more_than_their_update(rows: float, told: str) -> None:
    record = example("optimizer")
    record.summary["embedded"] = rows
    (found,) = of("optimizer", record)
    assert told in bound(found.as_dict() | {"overrides": [], "lost": 0.8})
