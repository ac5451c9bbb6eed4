"""What loader workers cost: cores that training needs, and starting anew in each epoch."""

import csv
from pathlib import Path

import pytest

from strobe.callbacks.columns import COLUMNS
from strobe.diagnose.attribution import attribution
from strobe.diagnose.foreign import spoken
from strobe.diagnose.predict import step_of
from strobe.diagnose.rank import diagnose
from strobe.diagnose.restarts import restarts
from strobe.records.steps import measure_steps
from support.recorded import BESIDE, causes, example, of


def test_restarted_workers_are_named_beside_the_cores_that_they_take() -> None:
    record = example("workers_restart", summary__environment__usable_cores=1, summary__threads=1)
    assert causes(record) == ["workers_restart"]
    without = {"overrides": ["engine.num_workers=0"], "side": "loader", "rate": 90000.0, "interval": [89000.0, 91000.0]}
    record.summary["ceilings"]["alternatives"].append(without | {"cpu_seconds": 1e-5})
    record.summary["ceilings"]["model"] = 4000.0
    record.summary["ceilings"]["intervals"]["model"] = [3900.0, 4100.0]
    assert sorted(causes(record)) == ["workers_hurt", "workers_restart"]


def test_a_loader_that_is_made_anew_restarts_its_workers() -> None:
    record = example("workers_restart", config__engine__persistent_workers=True)
    assert "workers_restart" not in causes(record)
    record.config["trainer"]["reload_dataloaders_every_n_epochs"] = 1
    first = diagnose(record)[0]
    assert (first.cause, first.overrides) == ("workers_restart", ("trainer.reload_dataloaders_every_n_epochs=0",))


def test_workers_of_validation_that_start_anew_are_found() -> None:
    record = example("workers_restart", config__engine__persistent_workers=True)
    record.config["validation"] = {"restarted_workers": 2}
    steps = sum(record.summary["steps"].values())
    record.summary["validation_starts"] = {"count": 5, "between": 3.0}
    record.summary["between_seconds"] = {"validation": 0.01, "checkpoints": 0.0, "between": 15.0 / steps}
    rate = record.summary["batch_size"] / (record.summary["step_seconds"]["total"] + 15.0 / steps)
    record.summary["overall_images_per_second"] = rate
    first = diagnose(record)[0]
    assert (first.cause, first.overrides) == ("workers_restart", ())
    assert "A validation waits 3 s for workers of its own" in first.evidence
    record.config["validation"] = {"restarted_workers": 0}  # then something else runs there
    assert diagnose(record)[0].cause == "between"


def test_workers_that_start_anew_within_epochs_are_found() -> None:
    record = example("workers_restart", config__engine__persistent_workers=True)
    measured, waits = record.summary["steps"]["measured"], record.summary["step_seconds"]["data_wait"]
    record.summary["epoch_starts"] = {"count": 0, "data_wait": None, "extra": None, "between": None}
    record.summary["worker_starts"] = {"count": measured // 4, "extra": {"data_wait": 3 * waits, "forward": 0.0}}
    first = diagnose(record)[0]
    assert (first.cause, first.overrides) == ("workers_restart", ())
    assert first.title == f"Loader workers are started anew in {measured // 4} of {measured} steps"
    assert "Let it keep its workers" in first.advice
    step = step_of(record)
    assert step
    (part,) = (part for part in attribution(record, step) if part.cause == "workers_restart")
    assert part.seconds == pytest.approx(0.75 * waits, rel=0.02)


def test_what_steps_that_start_workers_cost_is_told_beyond_others(tmp_path: Path) -> None:
    """Not of those that begin an epoch, or follow a validation."""
    rows = []
    for number in range(24):
        row = dict.fromkeys(COLUMNS, 0.0) | {"step": number, "epoch": number // 12, "images": 8, "updates": 1}
        anew = number % 3 == 0
        row |= {"workers_started": int(anew), "data_wait": 0.3 if anew else 0.1, "forward": 0.2 if anew else 0.1}
        row |= {"validation": float(number == 17), "total": row["data_wait"] + row["forward"]}
        rows.append(row)
    with (tmp_path / "steps.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    found = measure_steps(tmp_path / "steps.csv")["worker_starts"]
    assert found["count"] == len({3, 6, 9, 15, 21})
    assert found["extra"]["data_wait"] == pytest.approx(0.2)
    assert found["extra"]["forward"] == pytest.approx(0.1)


def test_of_a_script_the_computing_beside_new_workers_counts_beyond_what_all_batches_take() -> None:
    """Where no ceiling tells what a batch takes, all that its processes computed bounds that."""
    record = example("workers_restart")
    del record.summary["ceilings"]
    steps, starts = sum(record.summary["steps"].values()), record.summary["epoch_starts"]
    starts |= {"extra": {"forward": 0.2}, "between": 0.3}
    record.summary["machine"] = BESIDE | {"seconds": steps * 0.1, "children": 0.01}
    record.summary["between_seconds"] = {"validation": 0.0, "checkpoints": 0.0, "between": 1.0}
    step = step_of(record)
    assert step

    def per_start(part: float) -> float:
        return part * record.summary["steps"]["measured"] / starts["count"]

    cores = record.summary["environment"]["usable_cores"]
    each = 0.1 * 0.01 * cores  # core-seconds of a batch
    queued = min(2 * step.workers, record.summary["batches_per_epoch"])
    found = restarts(record, step)
    assert found
    assert per_start(found.computing) == pytest.approx(0.2 - queued * each / cores)
    assert found.between == 0  # nothing tells what runs there
    ending = {"phase": "between", "library": "torch.utils.data.DataLoader", "share": 0.5}
    record.summary["lines"] = [ending]
    found = restarts(record, step)
    assert found
    assert per_start(found.between) == pytest.approx(0.5 * 0.3)
    record.summary["machine"]["children"] = 1.0  # they computed too much for that to tell anything
    found = restarts(record, step)
    assert found
    assert found.computing == 0


def test_what_forked_workers_take_for_their_first_batch_is_no_restart() -> None:
    """Ten at once on two cores, without a ceiling: other contexts import, and cut epochs throw batches away."""
    record = example("workers_restart", summary__num_workers=10, summary__ceilings=None)
    record.summary["environment"]["usable_cores"] = 2
    step = step_of(record)
    assert step
    measured = record.summary["steps"]["measured"]
    record.summary["batches_per_epoch"] = batches = 20
    each = 0.4  # core-seconds of a batch
    seconds = each * sum(record.summary["steps"].values()) / (0.5 * 2)
    record.summary["machine"] = BESIDE | {"children": 0.5, "seconds": seconds}
    record.summary["epoch_starts"] = {"count": measured // batches, "data_wait": 2.1, "extra": None, "between": None}
    found = restarts(record, step)
    assert found
    assert found.wait * measured / (measured // batches) == pytest.approx(2.1 - each * 10 / 2)
    record.config["engine"]["multiprocessing_context"] = "spawn"
    found = restarts(record, step)
    assert found
    assert found.wait * measured / (measured // batches) == pytest.approx(2.1, rel=0.05)
    record.config["engine"]["multiprocessing_context"] = "fork"
    record.summary["epoch_starts"]["count"] = measured
    found = restarts(record, step)
    assert found
    assert found.wait == pytest.approx(2.1, rel=0.05)


def test_cores_are_taken_by_other_processes_and_by_workers_each_by_what_it_computes() -> None:
    record = example("loader", summary__num_workers=2)
    record.summary["environment"]["usable_cores"] = 2
    record.summary["machine"] = BESIDE | {"others": 0.15, "own": 0.8, "idle": 0.05, "delayed": 0.6, "children": 0.45}
    step = step_of(record)
    assert step
    shares = {part.name: part.share for part in attribution(record, step)}
    assert shares["other processes on these cores"] == pytest.approx(0.15)
    assert shares["cores that workers take"] == pytest.approx(0.45)
    (finding,) = of("workers_hurt", record)
    assert finding.title == "2 workers take 0.9 cores that training needs"
    record.summary["machine"]["delayed"] = 0.1  # there were cores for all
    assert not of("workers_hurt", record)
    record.summary["machine"] |= {"delayed": 0.6, "children": 0.0}  # what they do costs no core
    assert not of("workers_hurt", record)


def test_workers_that_are_restarted_for_each_step_are_found() -> None:
    record = example("workers_restart")
    seconds, steps = record.summary["step_seconds"], record.summary["steps"]["measured"]
    seconds["total"] += 0.62 - seconds["data_wait"]
    seconds["data_wait"], record.summary["epoch_starts"] = 0.62, {"count": steps + 2, "data_wait": 0.62}
    record.summary["overall_images_per_second"] = record.summary["batch_size"] / seconds["total"]
    record.summary["batches_per_epoch"] = 20
    (finding,) = of("workers_restart", record)
    assert f"{steps} of {steps} steps begin an epoch" in finding.evidence
    assert "one iterator" in finding.advice
    assert finding.overrides == ()
    record.summary["batches_per_epoch"] = 1  # an epoch is a step indeed
    (finding,) = of("workers_restart", record)
    assert finding.overrides == ("engine.persistent_workers=true",)


def test_all_that_starting_workers_slow_down_is_theirs_and_predicted(tmp_path: Path) -> None:
    """Epochs of six steps, whose first step is slow in each phase, and a gap after them in which the loader is made."""
    usual = {"forward": 0.005, "backward": 0.004, "optimizer": 0.001, "other": 0.001}
    slow = {"data_wait": 0.06, "forward": 0.025, "backward": 0.009, "optimizer": 0.041, "other": 0.001}
    with (tmp_path / "steps.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, restval=0)
        rows.writeheader()
        for step in range(120):
            phases, gap = usual if step % 6 else slow, {} if (step + 1) % 6 else {"between": 0.035}
            rows.writerow(
                {"step": step, "epoch": step // 6, "images": 32, "total": sum(phases.values())} | phases | gap
            )
    record = example("workers_restart", config__engine__persistent_workers=True, summary__num_workers=2)
    record.config["trainer"]["reload_dataloaders_every_n_epochs"] = 1
    ceilings = {"loader": 19000.0, "model": 32 / 0.011, "shared_cores": False, "joint": None}
    intervals = {side: [0.98 * ceilings[side], 1.02 * ceilings[side]] for side in ("loader", "model")}
    record.summary["ceilings"] |= ceilings | {"intervals": intervals | {"transfer": None}}
    record.summary.update(measure_steps(tmp_path / "steps.csv"))
    (finding,) = of("workers_restart", record)
    assert finding.predicted_speedup.median == pytest.approx(
        (6 * 0.011 + 0.16) / (6 * 0.011 + 2 * 32 / 19000), rel=0.05
    )
    assert "compute 65 ms longer; between epochs it takes 35 ms" in finding.evidence
    step = step_of(record)
    assert step
    largest, second = attribution(record, step)[:2]
    assert (largest.cause, largest.share) == ("workers_restart", pytest.approx(0.156 / 0.226, rel=0.05))
    assert second.cause == "computing"
    record.summary["epoch_starts"]["extra"]["forward"] = 60.0  # what no worker is the cause of
    assert (anew := restarts(record, step))
    assert anew.computing == pytest.approx(2 * anew.wait)
    record.config["trainer"]["reload_dataloaders_every_n_epochs"] = 0  # the same steps of workers that stay
    assert not of("workers_restart", record)


def copied_every_ten_steps(path: Path, epoch: int) -> None:
    """The first step of each ten takes 8 s longer, nearly all of it in the kernel, after a validation of 0.4 s."""
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, [*COLUMNS, "cpu_forward", "kernel", "page_faults"], restval=0)
        rows.writeheader()
        for step in range(60):
            phases = {"data_wait": 0.001, "forward": 0.3}
            asked = {"cpu_forward": "", "kernel": "", "page_faults": ""}
            if step % 10 == 0:
                phases = {"data_wait": 0.2 if step % epoch == 0 else 0.001, "forward": 8.3}
                asked = {"cpu_forward": 16.6, "kernel": 16.0, "page_faults": 100_000}
            elif step % 7 == 3:
                asked = {"cpu_forward": 0.6, "kernel": 0.0, "page_faults": 10}
            row = {"step": step, "epoch": step // epoch, "images": 32, "total": sum(phases.values())} | phases | asked
            gap = {"validation": 0.4, "between": 0.2} if step % 10 == 9 else {}
            rows.writerow(row | gap)


def test_memory_that_training_shares_with_new_workers_is_copied_in_the_kernel(tmp_path: Path) -> None:
    copied_every_ten_steps(path := tmp_path / "steps.csv", epoch=10)
    record = example("workers_restart", config__engine__persistent_workers=False, summary__num_workers=2)
    record.summary.update(measure_steps(path) | {"ceilings": None})
    assert record.seconds("total") == pytest.approx(0.301 + 5 * 8.2 / 57, rel=0.01)  # without the first three
    (finding,) = of("workers_restart", record)
    assert "compute 8 s longer" in finding.evidence
    assert "the kernel copies memory" in finding.evidence
    assert "those of validation, too" in finding.advice
    assert finding.predicted_speedup.median == pytest.approx(3.1, rel=0.1)
    record.config["engine"]["multiprocessing_context"] = "spawn"  # which shares no memory: it is not known what it is
    (unexplained,) = of("workers_restart", record)
    assert unexplained.predicted_speedup.median < 1.2
    assert "kernel" not in unexplained.evidence
    record.config["engine"] |= {"multiprocessing_context": None, "persistent_workers": True}
    assert not of("workers_restart", record)


@pytest.mark.parametrize("epoch", [10, 30])
def test_workers_of_validation_are_forks_of_training_too(epoch: int, tmp_path: Path) -> None:
    """Be it at the ends of epochs, or within them."""
    copied_every_ten_steps(path := tmp_path / "steps.csv", epoch)
    record = example("workers_restart", config__engine__persistent_workers=True, summary__num_workers=2)
    record.summary.update(measure_steps(path) | {"ceilings": None})
    assert record.summary["validation_starts"]["within"] == (0 if epoch == 10 else 4)
    assert not of("workers_restart", record)
    record.config["validation"] = {"restarted_workers": 2}
    (finding,) = of("workers_restart", record)
    assert finding.predicted_speedup.median > 2.2
    assert finding.advice.startswith("Keep validation's")


def test_waiting_for_cores_that_workers_take_is_not_the_loaders() -> None:
    record = example("loader", summary__num_workers=8, summary__environment__usable_cores=2, summary__threads=2)
    record.summary["machine"] = {"own": 0.99, "others": 0.0, "stolen": 0.0, "idle": 0.01, "delayed": 0.2}
    record.summary["ceilings"] |= {"alternatives": [], "joint": None, "shared_cores": True}
    assert causes(record)[0] == "loader"  # alone it is no faster
    record.summary["ceilings"]["loader"] = 9000.0
    record.summary["ceilings"]["intervals"]["loader"] = [8900.0, 9100.0]
    assert causes(record)[0] == "workers_hurt"
    record.summary["machine"] |= {"idle": 0.5, "own": 0.5}  # what it waits for computes nothing
    assert causes(record)[0] == "loader"


def test_where_a_workers_pace_is_not_known_all_of_an_epochs_first_wait_may_be_for_its_start() -> None:
    record = example("workers_restart")
    known = attribution(record, step_of(record))
    record.summary["ceilings"] = None
    unknown = attribution(record, step_of(record))
    (before,), (after,) = (
        [part.seconds for part in parts if part.cause == "workers_restart"] for parts in (known, unknown)
    )
    starts = record.summary["epoch_starts"]
    share = starts["count"] / record.summary["steps"]["measured"]
    assert before < after <= share * starts["data_wait"]
    assert causes(record)[0] == "workers_restart"


@pytest.mark.parametrize("wait", [0.0005, 0.02])
def test_cheaper_samples_also_come_sooner(wait: float) -> None:
    """Whether or not an epoch's first step waits: how fast workers load now is no limit."""
    record = example("workers_hurt", summary__num_workers=2, summary__ceilings=None)
    total = record.summary["step_seconds"]["total"]
    record.summary["step_seconds"]["data_wait"] = wait * total / 0.1
    record.summary["machine"] = BESIDE | {"others": 0.0, "own": 0.65, "children": 0.35, "idle": 0.0, "delayed": 0.3}
    (finding,) = of("workers_hurt", record)
    assert finding.predicted_speedup.median**2 == pytest.approx(1 / (1 - 0.3 - wait / 0.1), rel=0.02)
    assert "Make samples cheaper" in finding.advice


def test_the_command_that_proves_what_one_thread_for_a_library_brings() -> None:
    record = example("oversubscription")
    (unasked,) = of("oversubscription", record)
    assert "duel" not in unasked.advice
    record.summary["script"] = "python train.py --epochs 3"
    (found,) = of("oversubscription", record)
    line = "strobe duel -- python train.py --epochs 3 -- OPENBLAS_NUM_THREADS=1 python train.py --epochs 3 proves"
    assert line in found.advice
    record.config["environment"] = {"OPENBLAS_NUM_THREADS": None}  # of a search, which tries it
    (searched,) = of("oversubscription", record)
    assert searched.overrides == ("environment.OPENBLAS_NUM_THREADS=1",)
    step = step_of(record)
    assert step is not None
    assert spoken(searched, record, step).advice.endswith("Write OPENBLAS_NUM_THREADS=1 before the command.")


def test_what_only_long_steps_do_may_be_torchs() -> None:
    """An evaluation in every fiftieth step, say: operations are followed in the first steps alone."""
    record = example("outside_torch")
    (each,) = of("outside_torch", record)
    own = next(one for one in record.items("lines") if one["torch"] is False)
    record.summary["long_lines"] = [own]
    assert of("outside_torch", record)[0].title == each.title  # no step is long
    record.summary["uneven"] = record.mapping("uneven") | {"extra_seconds": record.seconds("total") / 3}
    (seldom,) = of("outside_torch", record)
    assert "not in torch" in each.title
    assert "torch" not in seldom.title + seldom.evidence
    assert seldom.advice.startswith("Do it less often")
    assert seldom.predicted_speedup == each.predicted_speedup


def test_what_a_function_calls_in_a_library_comes_with_what_it_has_in_c() -> None:
    """Which has no frame: the two are one call."""
    record = example("outside_torch")
    (alone,) = of("outside_torch", record)
    own = next(one for one in record.items("lines") if one["torch"] is False)
    record.summary["lines"] = [*record.items("lines"), own | {"library": "numpy", "share": own["share"] / 4}]
    (both,) = of("outside_torch", record)
    assert both.predicted_speedup.median > alone.predicted_speedup.median
    assert not of("library_call", record)


def test_threads_of_a_library_in_workers_are_told_from_workers() -> None:
    record = example("workers_hurt", summary__ceilings__alternatives=[])
    record.summary["machine"] = BESIDE | {"others": 0.0, "own": 0.3, "children": 0.65, "idle": 0.05, "delayed": 0.4}
    record.summary["ceilings"] = None
    assert not of("oversubscription", record)
    (before,) = of("workers_hurt", record)
    record.summary["worker_threads"] = 2.1
    (found,) = of("oversubscription", record)
    assert "in the loader workers" in found.title
    assert "Each worker computes with 2.1 threads at once" in found.evidence
    (after,) = of("workers_hurt", record)
    assert after.predicted_speedup.median < before.predicted_speedup.median
    record.summary["machine"]["idle"] = 0.5  # cores that nobody needs
    assert not of("oversubscription", record)
