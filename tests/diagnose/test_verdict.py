"""The verdict, what it promises and what it does not, and a command that can be run as it stands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from strobe.diagnose.promise import bound
from strobe.diagnose.rank import command, conclude, diagnose, verdict
from strobe.diagnose.symptoms import too_low
from strobe.records.run import Record
from support.composing import configured
from support.recorded import BESIDE, CALLBACK, CAUSES, causes, example, recorded, with_batches


@pytest.mark.parametrize(
    ("cause", "changes", "begin"),
    [
        (
            "loader",
            {},
            "61% of each step waits for data (measured 166, loader ceiling 280, model ceiling 430 images/s). "
            "Predicted: loader=tifffile -> ",
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


def test_a_gain_far_below_its_share_is_explained_where_the_record_tells() -> None:
    def told(between: float) -> str:
        record = example("loader", summary__ceilings__alternatives=[], config__engine={})
        record.summary["between_seconds"] = {"validation": between}
        found = diagnose(record)
        return " ".join((verdict(record, found), *(one.evidence for one in found if one.cause == "loader")))

    assert "because" not in told(0.0)
    assert "of training lies between steps" in told(1.0)
    validated = example("validation", summary__between_seconds={"validation": 0.3}, config__trainer={})
    assert "because" not in verdict(validated, diagnose(validated))  # it lies there itself


@pytest.mark.parametrize("delayed", [0.2, 0.5])
def test_what_is_left_out_waits_for_no_core_either(delayed: float) -> None:
    """Beside others all of training takes longer, so a cause keeps its share of a step, and comes first with more."""
    quiet = example("loader", summary__ceilings__alternatives=[], config__engine={})
    busy = example("loader", summary__ceilings__alternatives=[], config__engine={})
    busy.summary["machine"] = BESIDE | {"delayed": delayed}
    first, beside = diagnose(quiet)[0], diagnose(busy)[0]
    assert (first.cause, beside.cause) == ("loader", "loader")
    assert beside.lost == pytest.approx(first.lost)
    assert (
        bound(beside.as_dict())
        == bound(first.as_dict())
        == "With no waiting at all, training would be about 2.5x as fast, perhaps more"
    )


@pytest.mark.parametrize("cause", ["small_operations", "single_thread", "background_thread", "python_code"])
def test_of_a_cause_of_which_only_a_part_shows_no_upper_bound_is_told(cause: str) -> None:
    first = diagnose(example(cause))[0]
    assert re.fullmatch(r"Without it, training would be about [\d.]+x as fast, perhaps more", bound(first.as_dict()))


def test_a_verdict_tells_no_limit_below_the_measured_rate() -> None:
    def told(joint: float) -> str:
        record = example("callback", summary__ceilings__joint=joint)
        return verdict(record, diagnose(record)).partition(" Predicted")[0]

    assert told(400.0).endswith("model ceiling 430, together at most 400 images/s).")
    assert "ceiling" not in told(50.0)  # the run was faster: it is wrong
    assert told(5000.0).endswith("model ceiling 430 images/s).")  # the model is slower


def test_a_verdict_tells_no_ceiling_that_is_too_uncertain_to_compare_with() -> None:
    record, _ = recorded("prime-transforms")
    assert not too_low(record)
    assert "ceiling" not in verdict(record, diagnose(record))
    record.summary["ceilings"] |= {"model": record.summary["overall_images_per_second"], "joint": None}
    assert "model ceiling 2,508 images/s" in verdict(record, diagnose(record))


def test_batches_are_too_small_for_the_cores_only_where_these_idle_and_cost_what_is_no_part_of_its_own() -> None:
    record = example("small_batch")
    cost = "each has a fixed cost of 8.55 ms"  # the update, which takes 6 ms a step, is apart
    assert diagnose(record)[0].title == f"Batches of 8 are too small to keep the cores busy: {cost}"
    record.summary["cores_used"] |= {"forward": 7.9, "backward": 8.0}
    assert diagnose(record)[0].title == f"Batches of 8 compute fewer images per second than larger ones: {cost}"
    record.summary["step_seconds"]["optimizer"] += 0.009
    record.summary["step_seconds"]["forward"] -= 0.009
    update = diagnose(record)[0]
    assert update.cause == "optimizer"  # no fixed cost is left beside it: a larger batch is its remedy
    assert [remedy.overrides for remedy in update.remedies] == [("data.batch_size=32",)]
    assert causes(record) == ["optimizer"]


def test_batches_are_too_small_for_a_gpu_only_where_it_idles() -> None:
    record = example("launch_bound")
    record.summary["trace_evidence"]["kernel_seconds_median"] = 1.0  # so that launching is not the cause
    assert diagnose(record)[0].title.startswith("Batches of 512 are too small to keep the GPU busy: each has a fixed")
    record.summary["trace_evidence"]["device_busy"] = 0.0745 / 0.0862
    assert "small_batch" not in causes(record)


def test_a_faster_layout_is_a_cause_of_what_it_saves_in_computing_not_of_all_that_it_promises() -> None:
    """The model alone takes 72 ms a step, in the other layout 7; the run computes for 100 ms more, who knows why."""
    record = example("memory_layout", summary__callbacks=[CALLBACK | {"mean": 0.1, "longest": 0.11}])
    record.summary["ceilings"]["alternatives"][-1] |= {"rate": 4300.0, "interval": [4200.0, 4400.0]}
    for phase, more in (("callbacks", 0.1), ("forward", 0.1), ("total", 0.2)):
        record.summary["step_seconds"][phase] += more
    record.summary["overall_images_per_second"] = 32 / record.summary["step_seconds"]["total"]
    first, second = diagnose(record)
    assert (first.cause, second.cause) == ("callback", "memory_layout")
    assert 1 - 1 / second.predicted_speedup.median > (first.lost or 0.0) > (second.lost or 0.0)
    assert second.lost == pytest.approx(0.065 / 0.28, rel=0.05)


def test_on_a_gpu_a_faster_precision_is_not_bounded_by_where_the_host_waits() -> None:
    record = example("precision")
    record.summary["step_seconds"] |= {"forward": 0.004, "backward": 0.006, "transfer": 0.035, "optimizer": 0.02}
    first = diagnose(record)[0]
    assert first.cause == "precision"
    assert first.lost == pytest.approx(1 - 1 / first.predicted_speedup.median, rel=0.01)


def test_other_measured_remedies_hang_below_their_cause_each_with_its_own_prediction() -> None:
    first = diagnose(recorded("slow-disk")[0])[0]
    assert first.overrides == ("loader=native",)
    tried = [("engine.num_workers=6",), ("engine.num_workers=9",), ("loader=skimage",), ("loader=rasterio",)]
    assert [remedy.overrides for remedy in first.remedies] == tried
    medians = [remedy.predicted_speedup.median for remedy in (first, *first.remedies)]
    assert medians == sorted(medians, reverse=True)
    assert all(remedy.predicted_speedup.low > 1 for remedy in first.remedies)
    record = with_batches(example("nothing"), 900.0)
    larger = {"overrides": ["data.batch_size=128"], "images_per_step": 128, "rate": 1000.0, "interval": [990.0, 1010.0]}
    record.summary["ceilings"]["alternatives"].append(record.summary["ceilings"]["alternatives"][-1] | larger)
    record.summary["ceilings"]["alternatives"][-2]["interval"] = [880.0, 960.0]
    first = diagnose(record)[0]
    assert (first.overrides, [one.overrides for one in first.remedies]) == (
        ("data.batch_size=64",),
        [("data.batch_size=128",)],
    )


def test_a_verdict_without_anything_to_run_says_how_much_there_is_to_gain() -> None:
    record = example("nothing", summary__callbacks=[CALLBACK])
    (finding,) = diagnose(record)
    text = verdict(record, [finding])
    assert text.endswith(f". {bound(finding.as_dict())}.")
    assert "Predicted" not in text


@pytest.mark.parametrize(("name", "most"), [("climatology", 2.3), ("sampler-of-lengths", 1.8), ("slow-callback", None)])
def test_a_record_holds_what_its_verdict_says_without_the_cause(name: str, most: float | None, tmp_path: Path) -> None:
    record, _ = recorded(name)
    conclude(record.summary, record.config, tmp_path)
    held = record.summary["findings"][0]["bound"]
    assert (f"{held:.1f}x as fast" in record.summary["verdict"]) if most else (held is None)
    assert held == (most and pytest.approx(most, abs=0.05))


@pytest.mark.parametrize(
    ("efficiency", "title", "told"),
    [
        (0.6, "No cause found", "60% of what the model alone allows (430 images/s). The largest part of a step is"),
        (0.9, "Nothing to fix", "90% of what the model alone allows (430 images/s)."),
        (1.0, "Nothing to fix", "as fast as the model alone allows (430 images/s)."),
        (
            None,
            "No cause found",
            "the ceilings are not known. The largest part of a step is the backward pass, 54%: profiler=",
        ),
    ],
)
def test_nothing_is_only_called_fine_near_a_ceiling(efficiency: float | None, title: str, told: str) -> None:
    (finding,) = diagnose(example("nothing", summary__efficiency=efficiency))
    assert finding.title == title
    assert told in finding.evidence


@pytest.mark.parametrize(("share", "told"), [(0.85, True), (0.2, False), (None, False)])
def test_labels_that_the_loss_leaves_out_are_told_where_no_cause_is_found(share: float | None, told: bool) -> None:
    record = example("nothing", summary__efficiency=None)
    record.summary["ignored_labels"] = share
    (finding,) = diagnose(record)
    assert ("85% of the labels are -100" in finding.evidence) == told


def test_scaling_on_a_cpu_is_named_where_it_takes_much() -> None:
    slow = example("nothing")
    slow.summary["step_seconds"] |= {"transfer": 0.02, "forward": 0.0045}
    assert diagnose(slow)[0].evidence.endswith("Scaling and augmenting the images takes 26% of each step.")
    slow.config["data"]["augment"] = False
    assert diagnose(slow)[0].evidence.endswith("Scaling the images takes 26% of each step.")
    assert "Scaling" not in diagnose(example("nothing"))[0].evidence


def test_a_long_first_step_is_told_apart() -> None:
    record = example("nothing", summary__first_step_seconds=12.0)
    assert causes(record) == ["nothing"]
    told = verdict(record, diagnose(record))
    assert "The first step took 12 s, 11.9 s longer than usual: 44% of all step time, which images/s does not" in told
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
    record.summary["steps"] = {"measured": 0, "profiled": 0, "skipped": 0}
    assert ("training was ended before its first step" in verdict(record, findings)) == (status == "completed")
    record.summary["batches_per_epoch"] = 0
    assert "its loader gives no batches" in verdict(record, findings)


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


def test_a_command_for_larger_updates_scales_the_learning_rate() -> None:
    record = example("small_batch", summary__overrides=[])
    size = record.whole("data.batch_size") or 0
    scaled = f"model.lr_scaling=linear model.lr_batch_size={size}"
    assert command(record, [f"data.batch_size={2 * size}"]).endswith(f"data.batch_size={2 * size} {scaled}")
    assert command(record, ["trainer.accumulate_grad_batches=2"]).endswith(scaled)
    assert command(record, ["loader=native"]).endswith("loader=native")
    record.config["trainer"]["accumulate_grad_batches"] = 2
    assert "lr_" not in command(record, [f"data.batch_size={2 * size}", "trainer.accumulate_grad_batches=1"])


@pytest.mark.parametrize("cause", CAUSES)
def test_hydra_composes_what_is_to_be_copied(cause: str) -> None:
    record = example(cause)
    finding = diagnose(record)[0]
    program, script, *given = shlex.split(command(record, finding.overrides))
    assert (program, script) == ("python", "train.py")
    cfg = configured("config", *given)
    for key, value in (text.split("=") for text in finding.overrides if "=" in text and "." in text):
        chosen = OmegaConf.select(cfg, key)
        assert ("null" if chosen is None else str(chosen).lower()) == value


def test_no_finding_rests_on_a_ceiling_that_training_has_passed() -> None:
    record = example("loader")
    assert "the model alone reaches" in diagnose(record)[0].evidence
    rate = record.summary["overall_images_per_second"] / 3
    record.summary["ceilings"] |= {"model": rate, "intervals": {"model": [rate / 3, 12 * rate]}}
    record.summary["ceilings"]["alternatives"] = [
        {"side": "model", "overrides": ["data.batch_size=64"], "rate": 2 * rate, "ratio": [1.0, 0.9, 1.1]}
    ]
    assert too_low(record)
    [found] = [one for one in diagnose(record) if one.cause == "loader"]
    assert "the model alone reaches" not in found.evidence


def test_training_beyond_its_ceiling_is_not_measurable() -> None:
    record = example("memory_layout")
    for name in ("median", "low", "high"):
        record.summary["images_per_second"][name] *= 3
    assert not too_low(record)  # its mean step is as long as before: only most of its steps are so fast
    record.summary["overall_images_per_second"] *= 3
    for key in ("step_seconds", "between_seconds"):
        record.summary[key] = {name: value / 3 for name, value in record.summary[key].items()}
    (finding,) = diagnose(record)
    assert finding.title == "Not measurable here"
    assert "quiet machine" in finding.advice


@pytest.mark.parametrize(
    ("half", "why"),
    [
        (240.0, "not known: 180 steps differ too much"),
        (100.0, r"too uncertain, 0\.\d+x to [\d.]+x from 180 steps"),
    ],
)
def test_no_promise_whose_interval_holds_1_and_no_interval_that_says_nothing(half: float, why: str) -> None:
    rates = {"median": 300.0, "low": 300.0 - half, "high": 300.0 + half}
    finding = diagnose(record := example("callback", summary__images_per_second=rates))[0]
    assert finding.predicted_speedup.low < 1
    told = verdict(record, [finding]).partition("Try ~callbacks.audit: ")[2]
    assert re.fullmatch(f"its gain is {why}; a longer run or strobe tune tells\\.", told)


@pytest.mark.parametrize(("drift", "named"), [(0.6, False), (0.4, True)])
def test_what_may_help_is_named_where_its_interval_tells_something(drift: float, named: bool) -> None:
    record = example("memory_layout", summary__ceilings__drift=drift)
    (finding,) = diagnose(record)
    assert finding.title == "No certain gain"
    assert ("Worth a try: model.channels_last=true (0." in finding.evidence) == named
    assert "not known" not in finding.evidence
    assert finding.advice == "strobe tune tells what is faster."
    assert (finding.advice in verdict(record, [finding])) == named  # which is all that a terminal shows of it


def test_a_larger_batch_that_is_surely_faster_without_a_fixed_cost_is_worth_a_try_and_no_cause() -> None:
    record = with_batches(example("nothing", summary__ceilings__alternatives=[]), 450.0)
    record.summary["ceilings"]["alternatives"][0]["ratio"] = [1.046, 1.045, 1.047]
    record.summary["step_seconds"]["optimizer"] = 0.095 * record.summary["step_seconds"]["total"]
    (finding,) = diagnose(record)
    assert finding.title == "No certain gain"
    assert "Worth a try: data.batch_size=64 (1" in finding.evidence
    assert "Use batches of 64. This changes training: updates are fewer and larger" in finding.evidence
    assert "model.lr_batch_size=32 scales the learning rate" in finding.evidence
    assert finding.advice == "strobe tune tells what is faster."


def test_ceilings_that_were_measured_beside_other_processes_promise_nothing() -> None:
    record = example("memory_layout")
    assert causes(record) == ["memory_layout"]
    record.summary["ceilings"]["machine"] = BESIDE
    (finding,) = diagnose(record)
    assert finding.title == "Not measurable here"
    assert "Other processes took 30% of the time" in finding.evidence


def test_few_steps_make_nothing_certain() -> None:
    for measured, told in ((1, "Only 1 step was"), (5, "Only 5 steps were")):
        record = example("callback", summary__steps={"measured": measured, "profiled": 0, "skipped": 3})
        findings = diagnose(with_batches(record, 900.0))
        assert [finding.cause for finding in findings] == ["callback"]  # they are all slow by it
        text = verdict(record, findings)
        assert text.startswith(told)
        assert "until six or more are measured" in text
        assert "Predicted" not in text
        assert causes(example("memory_layout", summary__steps={"measured": measured})) == ["nothing"]


def test_of_few_steps_a_callback_that_costs_the_same_in_each_is_evident() -> None:
    steps, hook = {"measured": 5, "profiled": 0, "skipped": 3}, CALLBACK | {"mean": 0.01, "calls": 5}
    alike, uneven = (
        example("nothing", summary__steps=steps, summary__callbacks=[hook | {"longest": longest}])
        for longest in (0.012, 0.03)
    )
    assert (causes(alike), causes(uneven)) == (["callback"], ["nothing"])


@pytest.mark.parametrize("status", ["completed", "failed", "interrupted"])
@pytest.mark.parametrize("measured", [3, 90])
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"machine": BESIDE}, "other processes took"),
        ({"callbacks": [CALLBACK | {"mean": 0.03}]}, f"{CALLBACK['name']} takes"),
    ],
)
def test_a_title_within_a_sentence_begins_as_a_sentence_does_not(
    changes: dict[str, Any], told: str, measured: int, status: str
) -> None:
    record = example("nothing", summary__steps={"measured": measured}, summary__status=status)
    record.summary.update(changes)
    text = verdict(record, diagnose(record))
    if status == "completed" and measured == 90:
        assert text.startswith(told[0].upper() + told[1:])
    else:
        assert f": {told}" in text
    assert status == "completed" or "until then: Only" not in text


def test_of_two_about_equal_parts_the_same_one_comes_first() -> None:
    both = example("stalled", summary__step_seconds__callbacks=0.046)
    both.summary["step_seconds"]["total"] += 0.0454
    for mean in (0.040, 0.043, 0.046):
        both.summary["callbacks"] = [CALLBACK | {"mean": mean}]
        findings = diagnose(both)
        assert [finding.cause for finding in findings] == ["callback", "stalled"]
        assert " About as much is lost here: the forward pass is idle for" in verdict(both, findings)
    both.summary["callbacks"] = [CALLBACK | {"mean": 0.03}]
    assert causes(both) == ["stalled", "callback"]
    assert "About as much" not in verdict(both, diagnose(both))


def test_callbacks_that_cost_together_are_told_together() -> None:
    record = example("nothing", summary__callbacks=[])
    seconds = record.summary["step_seconds"]
    seconds |= {"callbacks": seconds["total"], "total": 2 * seconds["total"]}
    for name, share in (("Accuracy", 0.5), ("F1", 0.3), ("AUROC", 0.2)):
        record.summary["callbacks"].append(CALLBACK | {"name": name, "mean": share * seconds["callbacks"]})
    told = verdict(record, diagnose(record))
    assert told.startswith("Accuracy takes 25% of each step")
    assert "Together with F1 and AUROC it is 49%; without all of them, training would be up to 2.0x as fast." in told
