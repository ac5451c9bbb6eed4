"""Findings in order, and without symptoms of each other."""

from typing import Any

import pytest

from strobe.diagnose.attribution import attribution
from strobe.diagnose.causes import EXPLAINED
from strobe.diagnose.predict import step_of
from strobe.diagnose.promise import gain
from strobe.diagnose.rank import all_rules, diagnose, verdict
from strobe.records.run import Record
from support.recorded import BESIDE, CALLBACK, CAUSES, RECORDED, causes, example, of, recorded, with_batches


def test_the_greatest_gain_comes_first() -> None:
    record = example("validation", summary__callbacks=[CALLBACK])
    assert causes(record) == ["validation", "callback"]
    medians = [finding.predicted_speedup.median for finding in diagnose(record)]
    assert medians == sorted(medians, reverse=True)


def test_what_a_class_costs_in_steps_and_between_epochs_counts_together() -> None:
    record = example("validation", summary__callbacks=[CALLBACK])
    assert causes(record) == ["validation", "callback"]
    whole = sum(record.summary["between_seconds"].values())
    record.summary["between_seconds"] |= {"validation": 0.6 * whole, "between": 0.4 * whole}
    record.summary["after"] = [{"name": "Another", "mean": 0.4 * whole}]
    record.summary["callbacks"] = [CALLBACK | {"name": "Own", "mean": 0.4 * whole}]
    assert causes(record)[0] == "validation"
    record.summary["after"][0]["name"] = "Own"
    assert [one.subject for one in diagnose(record)[:2]] == ["Own", "Own"]


def test_little_gain_is_no_finding() -> None:
    assert causes(example("nothing", summary__callbacks=[CALLBACK | {"mean": 0.005}])) == ["callback"]
    assert causes(example("nothing", summary__callbacks=[CALLBACK | {"mean": 0.002}])) == ["nothing"]


def test_a_gain_within_noise_is_no_finding_unless_the_run_lost_the_time() -> None:
    drifted = {"summary__ceilings__drift": 0.6}
    assert causes(example("memory_layout", **drifted)) == ["nothing"]
    assert causes(example("validation", **drifted)) == ["validation"]


def test_what_a_cause_explains_is_not_listed_beside_it() -> None:
    assert causes(with_batches(example("nothing"), 900.0)) == ["small_batch"]
    assert causes(with_batches(example("loader"), 900.0)) == ["loader"]
    fewer_updates = with_batches(example("optimizer", summary__ceilings__alternatives=[]), 900.0)
    assert causes(fewer_updates) == ["small_batch", "optimizer"]  # each step pays for more than its update


def test_a_product_that_no_batch_changes_is_no_fixed_cost_beside_its_own_cause() -> None:
    record, cause = recorded("adapter-merged-each-step")
    assert causes(record) == [cause]
    record.summary["order"] = None
    assert causes(record)[0] == "small_batch"


def test_waiting_for_bytes_is_not_waiting_for_a_core() -> None:
    record, cause = recorded("slow-storage")
    record.summary["machine"]["delayed"] = 0.4  # of the time, all of it in what training computes
    wait = record.summary["step_seconds"]["data_wait"]
    parts = {part.cause: part.seconds for part in attribution(record, step_of(record))}
    assert parts[cause] == pytest.approx(wait)
    assert causes(record)[:2] == [cause, "shared_machine"]
    assert record.summary["machine"]["others"] > 0.8
    record.summary["machine"]["delayed"] = None  # a kernel that does not tell: others cannot have delayed a sleeper
    parts = {part.cause: part.seconds for part in attribution(record, step_of(record))}
    assert parts[cause] == pytest.approx(wait)
    assert causes(record)[:2] == [cause, "shared_machine"]
    record.summary["machine"]["delayed"] = 0.4
    record.summary["ceilings"]["storage"]["rate"] *= 2  # the other half of the wait is for something else
    parts = {part.cause: part.seconds for part in attribution(record, step_of(record))}
    assert parts[cause] < wait


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


def test_idle_cores_that_more_threads_were_measured_to_use_are_a_cause_however_uncertain_the_gain() -> None:
    faster = {"overrides": ["threads=8"], "side": "model", "rate": 6400.0, "interval": [6000.0, 6800.0]}
    ratio = {"ratio": [1.6, 1.2, 2.2]}
    record = example("nothing", summary__threads=1, summary__environment__usable_cores=8)
    record.summary["machine"] = dict(record.summary.get("machine") or {}) | {"idle": 0.6, "seconds": 10.0}
    record.summary["ceilings"]["alternatives"] = [faster | ratio]
    assert causes(record) == ["threads"]
    record.summary["ceilings"]["alternatives"] = [faster | {"ratio": [1.6, 0.9, 2.8]}]
    assert causes(record) == ["nothing"]


def with_one_thread(cause: str, *, idle: float, physical: int | None = 8) -> Record:
    record = example(cause, summary__ceilings=None, summary__threads=1, summary__environment__usable_cores=8)
    record.summary["environment"]["physical_cores"] = physical
    record.summary["machine"] = dict(record.summary.get("machine") or {}) | {"idle": idle, "seconds": 10.0}
    return record


def test_idle_cores_without_a_thread_are_a_cause_where_nobody_measured_more_threads() -> None:
    (found,) = diagnose(with_one_thread("nothing", idle=0.87))
    assert (found.cause, found.title) == ("threads", "Training uses 1 thread on 8 usable cores")
    assert "On all of them, training would be up to" in verdict(with_one_thread("nothing", idle=0.87), [found])
    (fewer,) = diagnose(with_one_thread("nothing", idle=0.26))  # two cores, the rest is others'
    assert 0 < (fewer.lost or 0.0) < (found.lost or 0.0)
    assert causes(with_one_thread("nothing", idle=0.05)) == ["nothing"]
    assert causes(with_one_thread("nothing", idle=0.87, physical=None)) == ["nothing"]  # an old record
    assert causes(with_one_thread("nothing", idle=0.87, physical=1)) == ["nothing"]  # torch's own number


@pytest.mark.parametrize("cause", ["library_call", "python_code", "stalled", "callback"])
def test_more_threads_promise_nothing_of_what_they_do_not_speed_up(cause: str) -> None:
    lost = {one.cause: one.lost or 0.0 for one in diagnose(with_one_thread(cause, idle=0.87))}
    before = {one.cause: one.lost or 0.0 for one in diagnose(example(cause))}
    assert lost[cause] == pytest.approx(before[cause], rel=0.02)
    assert lost["threads"] <= 7 / 8 * (1 - lost[cause])


def test_weights_in_double_precision_are_a_cause_where_nobody_measured_another() -> None:
    record = example("nothing", summary__ceilings=None)
    for weights, cause in (("float64", "precision"), ("float32", "nothing")):
        record.summary["weights"] = weights
        assert causes(record) == [cause]


def test_double_weights_are_a_cause_whatever_mixed_precision_reaches_which_leaves_them_alone() -> None:
    record = example("nothing", summary__environment__cpu_bfloat16=True)
    record.summary["weights"] = "float64"
    mixed = {"overrides": ["trainer.precision=bf16-mixed"], "side": "model", "rate": 500.0, "interval": [400.0, 600.0]}
    record.summary["ceilings"]["alternatives"] = [mixed | {"ratio": [1.1, 1.05, 1.2]}]
    assert causes(record) == ["precision"]
    assert "float64" in diagnose(record)[0].evidence


def test_sixteen_bits_that_are_emulated_are_a_cause_where_nobody_measured_another() -> None:
    record = example("nothing", summary__ceilings=None, config__trainer__precision="bf16-mixed")
    for fast, cause in ((True, "nothing"), (False, "precision")):
        record.summary["environment"]["cpu_bfloat16"] = fast
        assert causes(record) == [cause]
    assert diagnose(record)[0].overrides == ("trainer.precision=32-true",)


def test_what_explains_and_what_is_explained_are_rules() -> None:
    rules = {rule.__name__ for rule in all_rules()}
    assert {name for symptom, cause, _ in EXPLAINED for name in (symptom, cause)} <= rules


def sleepy(phase: str, seconds: float, **changes: Any) -> Record:
    """A run of small batches whose every step waits for so long in a phase, which larger batches do less often."""
    record = example("stalled", summary__step_seconds__forward=0.02, **changes)
    spent = record.summary["step_seconds"]
    spent[phase] += seconds
    spent["total"] = sum(value for name, value in spent.items() if name != "total")
    rate = record.summary["batch_size"] / spent["total"]
    record.summary["images_per_second"] = {"median": rate, "low": 0.98 * rate, "high": 1.02 * rate}
    record.summary["overall_images_per_second"] = record.summary["batch_size"] / (spent["total"] + 0.003)
    model = record.summary["batch_size"] / (spent["total"] - spent["callbacks"] - spent["data_wait"])
    record.summary["ceilings"] |= {"model": model, "joint": None, "shared_cores": False, "alternatives": []}
    record.summary["ceilings"]["intervals"]["model"] = [0.98 * model, 1.02 * model]
    record.summary["cores_used"]["forward"] = 7.0
    return with_batches(record, 1.9 * model)


def test_a_step_that_sleeps_for_a_part_of_its_time_stands_still_so_long() -> None:
    record = sleepy("forward", 0.18)  # 200 ms, of which 120 on no core, and 80 on all
    threads = record.summary["threads"]
    record.summary["cores_used"]["forward"], record.summary["main_used"] = 0.4 * threads, {"forward": 0.4}
    first = diagnose(record)[0]
    assert (first.cause, first.subject) == ("stalled", "forward")
    assert first.lost == pytest.approx(0.12 / record.summary["step_seconds"]["total"], rel=0.05)
    record.summary["cores_used"]["forward"] += 0.6  # other threads of its own compute meanwhile
    assert "stalled" not in causes(record)


def test_a_slow_update_is_the_cause_and_a_larger_batch_its_remedy() -> None:
    first = diagnose(sleepy("optimizer", 0.5))[0]
    assert first.cause == "optimizer"
    assert first.lost == pytest.approx(0.5 / 0.57, abs=0.05)
    assert [remedy.overrides for remedy in first.remedies] == [("data.batch_size=64",)]


def test_a_slow_callback_is_the_cause_however_much_a_larger_batch_promises() -> None:
    record = sleepy("callbacks", 0.5, summary__callbacks=[CALLBACK | {"mean": 0.5, "longest": 0.6}])
    first = diagnose(record)[0]
    assert (first.cause, first.subject) == ("callback", "Audit")
    assert [remedy.overrides for remedy in first.remedies] == [("data.batch_size=64",)]


def test_a_step_that_sleeps_is_not_called_computing() -> None:
    record = sleepy("forward", 0.5, summary__cores_used__forward=0.1)
    record.summary["cores_used"]["forward"] = 0.1
    first = diagnose(record)[0]
    assert (first.cause, first.subject) == ("stalled", "forward")
    assert "small_batch" not in causes(record)


def test_two_instances_of_a_class_are_one_cause() -> None:
    both = [CALLBACK | {"name": name, "mean": 0.02} for name in ("Audit", "Audit 2")]
    (finding,) = diagnose(example("nothing", summary__callbacks=both))
    assert "40 ms per mean step (2 instances)" in finding.evidence


@pytest.mark.parametrize("cause", CAUSES)
def test_the_parts_of_a_step_add_up(cause: str) -> None:
    parts = attribution(record := example(cause), step := step_of(record))
    assert sum(part.seconds for part in parts) == pytest.approx(step.total * step.images)
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert all(part.seconds > 0 for part in parts[:-1])


def test_what_sleeps_is_named_beside_other_processes_too() -> None:
    record = example("stalled")
    record.summary["machine"] |= BESIDE
    assert set(causes(record)[:2]) == {"stalled", "shared_machine"}
    record.summary["cores_used"]["forward"] = 0.69  # it stood ready for a core all the rest of the time
    assert "stalled" not in causes(record)


def test_an_update_that_waits_for_a_core_is_no_fault_of_the_optimizers() -> None:
    def found(used: float, delayed: float) -> list[str]:
        record = example("optimizer", summary__ceilings__alternatives=[])
        record.summary["machine"] = BESIDE | {"delayed": delayed}
        record.summary["cores_used"] = {"optimizer": used}
        return causes(record)

    assert "optimizer" not in found(0.3, 0.5)
    assert "optimizer" in found(0.1, 0.15)  # mostly it waits for something else
    assert "optimizer" in found(0.9, 0.3)  # it computes
    alternative = example("optimizer")  # whose fused update was measured
    alternative.summary["machine"] = BESIDE | {"delayed": 0.5}
    assert "optimizer" in causes(alternative)


def test_a_validation_at_the_end_of_a_broken_epoch_falls_on_a_whole_one() -> None:
    record = example("validation", summary__batches_per_epoch=20_000)
    assert causes(record)[0] == "validation"  # it comes in the middle of epochs, after so many batches
    record.config["trainer"]["val_check_interval"] = 1.0
    assert "validation" not in causes(record)


def test_memory_that_is_soon_used_up_comes_before_what_is_slow_and_promises_no_speed() -> None:
    hook = {"summary__callbacks": [CALLBACK]}
    assert causes(example("growing_memory", **hook)) == ["growing_memory", "callback"]
    record = example("growing_memory", summary__environment__memory_free_bytes=4e11, **hook)  # it lasts for hours
    assert causes(record) == ["callback", "growing_memory"]
    record = example("growing_memory", **hook)
    record.summary["memory_growth"]["workers_memory"]["seconds"] = 7.0  # too short to tell of ten minutes ahead
    assert causes(record) == ["callback", "growing_memory"]
    record.summary["machine"] = BESIDE  # which stretches a first minute, in which memory grows in any training
    assert "growing_memory" not in causes(record)
    record.summary["memory_growth"]["workers_memory"]["seconds"] = 70.0
    assert causes(record)[0] == "growing_memory"
    found = diagnose(example("growing_memory"))
    assert gain(found[0].as_dict()) == ""
    assert "memory grows by 40 MB a second" in verdict(record, found)
    assert "that are free now last 9.17 min" in found[0].evidence


def test_a_thread_beside_training_is_named_before_what_it_slows() -> None:
    record = example("background_thread")
    layout = {"overrides": ["model.channels_last=true"], "side": "model", "rate": 400.0, "interval": [390.0, 410.0]}
    record.summary["ceilings"]["alternatives"] = [layout]
    assert causes(record)[0] == "background_thread"
    assert "watcher" in diagnose(record)[0].evidence
    record.summary["machine"]["threads"] = [{"name": "loader_0", "cores": 0.9}]  # it loads, and holds nothing up
    assert "background_thread" not in causes(record)


def test_a_step_that_sleeps_beside_a_busy_thread_is_not_called_computing() -> None:
    record = example("stalled", summary__machine=example("background_thread").summary["machine"])
    record.summary["cores_used"] = {name: used + 0.9 for name, used in record.summary["cores_used"].items()}
    record.summary["main_used"] = dict.fromkeys(record.summary["cores_used"], 1.0) | {"forward": 0.1}
    assert causes(record) == ["stalled"]  # for Python's lock it would wait in the other phases too


def test_torchs_threads_that_lost_their_cores_for_a_while_are_no_stall() -> None:
    """Of a virtual machine's time its host took a tenth; the main thread then waits for the other one too."""
    record = example("stalled", summary__threads=2, summary__environment__usable_cores=2)
    record.summary["main_used"] = dict.fromkeys(record.summary["cores_used"], 0.68)
    record.summary["cores_used"] = dict.fromkeys(record.summary["cores_used"], 1.22)
    machine = {"own": 0.64, "others": 0.04, "idle": 0.24, "delayed": 0.03}
    record.summary["machine"] = machine | {"stolen": 0.0}
    assert "stalled" in causes(record)
    record.summary["machine"] = machine | {"stolen": 0.09}
    assert "stalled" not in causes(record)


def test_one_thread_that_computes_is_no_cause_where_a_step_costs_that_whatever_its_size() -> None:
    record = example("single_thread")
    assert causes(record) == ["single_thread"]
    assert causes(with_batches(record, 1.9 * record.summary["ceilings"]["model"])) == ["small_batch"]
    for changes in ({"summary__threads": 1}, {"summary__main_used": {}}, {"summary__accelerator": "cuda"}):
        assert "single_thread" not in causes(example("single_thread", **changes))


def test_a_phase_that_is_serial_for_the_most_part_loses_that_part() -> None:
    record = example("single_thread")
    whole = diagnose(record)[0].lost or 0.0
    record.summary["cores_used"]["forward"] = 1.0 + 7 * 0.4  # all eight in two fifths of its time
    first = diagnose(record)[0]
    assert (first.cause, first.title) == ("single_thread", "60% of the forward pass uses one of 8 cores")
    assert first.lost == pytest.approx(0.6 * whole, rel=0.05)
    record.summary["cores_used"]["forward"] = 1.0 + 7 * 0.6
    assert causes(record)[0] == "single_thread"  # the backward pass is hardly serial
    record.summary["cores_used"]["backward"] = 1.0 + 7 * 0.7
    assert "single_thread" not in causes(record)
    record.summary["cores_used"] |= {"forward": 1.0 + 7 * 0.8, "backward": 1.0 + 7 * 0.98}
    assert "single_thread" not in causes(record)


def test_a_hook_promises_no_more_than_twice_what_it_takes() -> None:
    bar = CALLBACK | {"name": "ProgressBar", "mean": 0.002}
    record = example("nothing", summary__callbacks=[bar])
    record.summary["ceilings"]["model"] *= 3  # the replayed step is far faster, for whatever reason
    (finding,) = of("callback", record)
    assert finding.predicted_speedup.median < 1 / (1 - 2 * 0.002 / record.summary["step_seconds"]["total"])


def test_what_ends_an_epoch_is_paid_by_the_steps_of_a_whole_one() -> None:
    record = example("between", summary__batches_per_epoch=20_000)
    assert "between" not in causes(record)


def test_a_knee_is_not_moved_by_noise() -> None:
    record = with_batches(example("nothing"), 900.0)
    entry = record.summary["ceilings"]["alternatives"][-1]
    larger = entry | {"overrides": ["data.batch_size=128"], "images_per_step": 128, "rate": 990.0}
    record.summary["ceilings"]["alternatives"].append(larger | {"interval": [890.0, 1090.0]})
    assert diagnose(record)[0].overrides == ("data.batch_size=64",)
    record.summary["ceilings"]["alternatives"][-1]["interval"] = [985.0, 995.0]
    assert diagnose(record)[0].overrides == ("data.batch_size=128",)
    small, large = record.summary["ceilings"]["alternatives"][-2:]
    small["interval"], large["interval"] = [100.0, 1500.0], [900.0, 1100.0]  # which promises nothing; certainly faster
    assert diagnose(record)[0].overrides == ("data.batch_size=128",)


def test_others_are_named_where_nobody_tells_how_long_training_stood_ready() -> None:
    record = example("shared_machine")
    record.summary["machine"] |= {"delayed": None, "idle": 0.02}
    assert causes(record)[0] == "shared_machine"
    record.summary["machine"]["idle"] = 0.5  # cores enough for both
    assert "shared_machine" not in causes(record)


@pytest.mark.parametrize("name", [name for name in RECORDED if recorded(name)[0].summary["ceilings"]])
def test_four_ranks_with_four_times_the_machine_are_told_what_one_is(name: str) -> None:
    def told(record: Record) -> list[tuple[Any, ...]]:
        return [(one.cause, one.overrides, pytest.approx(one.predicted_speedup.median)) for one in diagnose(record)]

    one, ranks = told(recorded(name)[0]), 4
    summary, ceilings = (record := recorded(name)[0]).summary, record.summary["ceilings"]
    summary.update(devices=ranks, world_size=ranks)
    for node, keys in (
        (summary, ("overall_images_per_second", "train_images")),
        (summary["images_per_second"], ("median", "low", "high")),
        (summary["environment"], ("usable_cores", "shm_free_bytes")),
        (ceilings, ("loader", "model", "joint")),
        (storage := ceilings.get("storage") or {"rate": 0.0, "more": 0.0}, ("rate", "more")),
        *((entry, ("rate", "images_per_step")) for entry in ceilings["alternatives"]),
    ):
        node.update({key: ranks * node[key] for key in keys if node[key]})
    storage["ranks"] = ranks
    for rates in (
        *filter(None, ceilings["intervals"].values()),
        *(one["interval"] for one in ceilings["alternatives"]),
    ):
        rates[:] = [ranks * rate for rate in rates]
    assert told(record) == one


def test_what_others_took_of_the_ceilings_counts_where_the_main_thread_waited_for_those_that_measured() -> None:
    record = example("small_batch")
    assert causes(record)[0] == "small_batch"
    record.summary["machine"] = {"own": 0.5, "others": 0.5, "stolen": 0.0, "idle": 0.0, "delayed": 0.5}
    record.summary["ceilings"]["machine"] = record.summary["machine"] | {"delayed": 0.02}
    assert causes(record)[0] == "shared_machine"
    assert "small_batch" not in causes(record)
