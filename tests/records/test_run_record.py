"""The record of a run: written whole or not at all, and measured from the rows of its steps."""

import csv
import json
import math
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strobe.callbacks.columns import COLUMNS, CPU, OWNED, PHASES
from strobe.records.files import whole, write_summary
from strobe.records.run import Record, load_record, read_summary
from strobe.records.steps import measure_steps
from support.interruptions import full_disk
from support.refusals import refusal

NOTHING = {"median": None, "low": None, "high": None}


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"a": math.nan, "b": [1.5, math.inf, {"c": -math.inf}], "d": None, "e": "NaN", "f": True})
    assert read_summary(path) == {"a": None, "b": [1.5, None, {"c": None}], "d": None, "e": "NaN", "f": True}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_a_reader_never_sees_half_a_record(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"a": 1})
    with path.open() as reader:
        write_summary(path, {"a": 2})
        assert json.load(reader) == {"a": 1}
    assert read_summary(path) == {"a": 2}


def test_threads_write_beside_each_other(tmp_path: Path) -> None:
    """None takes what another one writes for a file that a killed process left."""

    def write(number: int) -> None:
        with whole(tmp_path / str(number)) as partial:
            partial.write_text(str(number))

    with ThreadPoolExecutor(16) as pool:
        for _ in range(50):
            list(pool.map(write, range(16)))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(one): str(one) for one in range(16)}


@pytest.mark.parametrize(("value", "error"), [("x" * 100_000, OSError), (object(), TypeError)], ids=["full", "type"])
def test_a_failed_write_leaves_the_old_record(tmp_path: Path, value: object, error: type[Exception]) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"a": 1})
    with full_disk(50_000), pytest.raises(error):
        write_summary(path, {"a": value})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """A steps.csv of the given (images, profiled, seconds); half of a step is forward, and the rest is other."""

    def write(*given: tuple[int, int, float]) -> Path:
        path = tmp_path / "steps.csv"
        with path.open("w", newline="") as file:
            rows = csv.DictWriter(file, COLUMNS, restval=0)
            rows.writeheader()
            for step, (images, profiled, total) in enumerate(given):
                row = {"images": images, "profiled": profiled, "total": total}
                rows.writerow({"step": step, **row, "forward": total / 2, "other": total / 2})
        return path

    return write


def test_a_damaged_table_loses_only_the_steps(record: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    path = record((8, 0, 0.1))
    path.write_text(path.read_text() + "1,zero\n")
    assert measure_steps(path)["steps"] == {"measured": 0, "profiled": 0, "skipped": 0}
    assert f"{path} is damaged" in caplog.text


WARMUP = [(8, 0, 9.0)] * 3
STEADY = [(8, 0, 0.1), (8, 0, 0.2), (8, 0, 0.4), (4, 0, 0.1)]


def measured(values: Sequence[float]) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return dict.fromkeys(PHASES, 0.0) | {"total": mean, "forward": mean / 2, "other": mean / 2}


def test_warmup_and_profiled_steps_count_for_nothing(record: Callable[..., Path]) -> None:
    first, *rest = STEADY
    found = measure_steps(record(*WARMUP, first, (8, 1, 7.0), (8, 1, 8.0), *rest))
    assert found["steps"] == {"measured": 4, "profiled": 2, "skipped": 3}
    rate = found["images_per_second"]
    assert rate["median"] == pytest.approx(40.0)
    assert rate["low"] < 20  # four values tell less than their range
    assert rate["high"] > 80
    assert found["step_seconds"] == pytest.approx(measured([0.1, 0.2, 0.4, 0.1]))
    assert found["step_seconds"]["total"] == pytest.approx(sum(found["step_seconds"][name] for name in PHASES))
    in_warmup = measure_steps(record((8, 0, 9.0), *[(8, 1, 9.0)] * 3, *STEADY))
    assert in_warmup["steps"] == {"measured": 4, "profiled": 3, "skipped": 1}  # each is counted once


@pytest.mark.parametrize(("compiled", "left"), [((7,), 6), ((3, 4, 5, 6, 7), 7)])
def test_steps_that_compile_anew_count_for_nothing_unless_most_do(
    record: Callable[..., Path], compiled: tuple[int, ...], left: int
) -> None:
    rows = list(csv.DictReader(record(*[(8, 0, 0.1)] * 10).read_text().splitlines()))
    for place in compiled:
        rows[place] |= {"compiled": 1, "total": 5.0, "forward": 5.0, "other": 0.0}
    path = record()
    with path.open("a", newline="") as file:
        csv.DictWriter(file, COLUMNS).writerows(rows)
    found = measure_steps(path)
    assert found["recompiled"] == len(compiled)
    assert found["steps"] == {"measured": left, "profiled": 0, "skipped": 10 - left}
    assert (found["step_seconds"]["total"] > 0.2) == (left == 7)


@pytest.mark.parametrize(
    ("seconds", "calls"),
    [
        ([0.009] * 38 + [0.05, 0.1], 40),  # it runs in each step, now and then on a busy machine
        ([1e-5] * 38 + [0.2, 0.3], 2),  # it only looks whether there is work
        ([0.0] * 40, 0),
    ],
)
def test_a_callback_runs_in_the_steps_in_which_it_takes_time(tmp_path: Path, seconds: list[float], calls: int) -> None:
    path = tmp_path / "steps.csv"
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, (*COLUMNS, f"{OWNED}Audit"), restval=0)
        rows.writeheader()
        for step, spent in enumerate([0.0] * len(WARMUP) + seconds):
            rows.writerow({"step": step, "images": 8, "total": 1, f"{OWNED}Audit": spent})
    (found,) = measure_steps(path)["callbacks"]
    assert (found["name"], found["calls"], found["longest"]) == ("Audit", calls, max(seconds))


@pytest.mark.parametrize(("content", "skipped"), [(None, 0), ("", 0), ([], 0), (WARMUP, 3)], ids=str)
def test_a_run_without_a_step_to_measure(
    record: Callable[..., Path], tmp_path: Path, content: list[tuple[int, int, float]] | str | None, skipped: int
) -> None:
    path = tmp_path / "missing.csv" if content is None else record(*content)
    if content == "":
        path.write_text("")
    found = measure_steps(path)
    assert found["steps"] == {"measured": 0, "profiled": 0, "skipped": skipped}
    assert found["images_per_second"] == NOTHING
    assert found["step_seconds"] == dict.fromkeys(("total", *PHASES))


def test_a_last_line_that_is_not_whole_counts_for_nothing(record: Callable[..., Path]) -> None:
    path = record(*WARMUP, *STEADY)
    text = path.read_bytes()
    start = text.rstrip().rindex(b"\n") + 1
    whole = measure_steps(record(*WARMUP, *STEADY[:-1]))
    for end in range(start, len(text)):
        path.write_bytes(text[:end])
        assert measure_steps(path) == whole


def write(directory: Path, summary: str, config: str | None = None) -> Path:
    (directory / "summary.json").write_text(summary)
    if config is not None:
        (directory / ".hydra").mkdir()
        (directory / ".hydra" / "config.yaml").write_text(config)
    return directory


def test_a_record_holds_summary_and_configuration(tmp_path: Path) -> None:
    record = load_record(write(tmp_path, '{"schema": 1, "status": "failed"}', "data:\n  root: ${oc.env:NOT_THERE}\n"))
    assert record == Record({"schema": 1, "status": "failed"}, {"data": {"root": "${oc.env:NOT_THERE}"}})
    assert record.has("data.root")
    assert not record.has("data.batch_size")


@pytest.mark.parametrize("config", [None, "", "- 1\n", "1", "a: [", "a: b: c", "\x00"])
def test_without_a_configuration_the_record_is_read(tmp_path: Path, config: str | None) -> None:
    assert load_record(write(tmp_path, '{"schema": 1}', config)).config == {}


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ("", "is damaged"),
        ('{"schema": 1', "is damaged"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is damaged"),
        ("[" * 100_000, "is damaged"),
        ("[1]", "holds no JSON object"),
        ("{}", "has schema None"),
        ('{"schema": 2}', "has schema 2"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, summary: str, message: str) -> None:
    said = refusal(lambda: load_record(write(tmp_path, summary)))
    assert message in said
    assert str(tmp_path) in said


def test_a_directory_without_a_record_is_refused(tmp_path: Path) -> None:
    assert "has no summary.json" in refusal(lambda: load_record(tmp_path))
    assert "is not a directory" in refusal(lambda: load_record(tmp_path / "absent"))


def test_a_few_long_steps_are_told_from_steps_that_become_longer(record: Callable[..., Path]) -> None:
    uneven = measure_steps(record(*WARMUP, *[(8, 0, 0.5 if step % 10 == 5 else 0.1) for step in range(80)]))
    assert uneven["uneven"] == {
        "steps": 8,
        "begin_epochs": 0,
        "usual_seconds": 0.1,
        "long_seconds": 0.5,
        "extra_seconds": pytest.approx(0.04),
        "garbage_seconds": 0,
        "files": None,
        "phase": "forward",
    }
    assert uneven["quarters"]["seconds"] == [0.1] * 4
    longer = measure_steps(record(*WARMUP, *[(8, 0, 0.1 * (1 + step / 80)) for step in range(80)]))
    assert longer["uneven"]["steps"] == 0
    assert longer["quarters"]["seconds"] == pytest.approx([0.1119, 0.1369, 0.1619, 0.1869], rel=1e-3)
    few = measure_steps(record(*WARMUP, *[(8, 0, 0.1 * (1 + step / 12)) for step in range(12)]))
    assert few["uneven"] is None  # too few
    assert few["quarters"]["seconds"] == pytest.approx([0.1083, 0.1333, 0.1583, 0.1833], rel=1e-3)


def quarters_of(path: Path, lengths: list[float], epochs: int = 1, device: str = "cpu", **more: list[int]) -> dict:
    """Of steps whose forward pass takes so long, with noise."""
    noise, size = random.Random(3), len(lengths) / epochs
    head = ["step", "epoch", "total", "forward", *more]
    lines = [",".join(head)]
    for step, length in enumerate([lengths[0]] * 3 + lengths):
        place, seconds = max(0, step - 3), length * math.exp(noise.gauss(0, 0.02))
        cells = [step, int(place / size), seconds, seconds, *(values[place] for values in more.values())]
        lines.append(",".join(map(str, cells)))
    (path / "steps.csv").write_text("\n".join([*lines, ""]))
    found = measure_steps(path / "steps.csv", device=device)["quarters"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_where_steps_become_longer_at_once_is_told(tmp_path: Path, share: float) -> None:
    changed = int(200 * share) + 1
    jump = quarters_of(tmp_path, [0.1] * changed + [0.2] * (200 - changed))["jump"]
    assert (jump["step"], jump["phase"]) == (changed + 3, "forward")
    assert jump["seconds"] == jump["phase_seconds"] == pytest.approx([0.1, 0.2], rel=0.02)


@pytest.mark.parametrize(
    ("lengths", "more"),
    [
        ([0.3] * 50 + [0.1] * 150, {}),  # a slow first epoch
        ([0.1 + step / 2000 for step in range(200)], {}),  # slower and slower
        ([0.2] * 66 + [0.25] * 67 + [0.3] * 67, {}),  # with each epoch
        ([0.1] * 100 + [0.2] * 50 + [0.1] * 50, {}),  # for a while
        ([0.1, 0.2] * 100, {}),  # of two sizes
        ([0.1] * 10 + [0.2] * 190, {}),  # until a queue has filled
        ([0.1] * 100 + [0.2] * 100, {"images": [8] * 100 + [16] * 100}),
        ([0.1] * 100 + [0.2] * 100, {"updates": [0, 0, 0, 1] * 25 + [1] * 100}),
        ([0.1] * 15 + [0.2] * 15, {}),  # too few to tell
    ],
)
def test_other_steps_do_not_become_longer_at_once(tmp_path: Path, lengths: list[float], more: dict) -> None:
    assert quarters_of(tmp_path, lengths, **more)["jump"] is None


def test_a_gpu_whose_own_time_nobody_knows_may_only_have_filled_its_queue(tmp_path: Path) -> None:
    assert quarters_of(tmp_path, [0.1] * 100 + [0.2] * 100, device="cuda")["jump"] is None


def test_steps_that_get_slower_with_each_epoch_rise(tmp_path: Path) -> None:
    """Steps of one epoch say nothing: they take equally long."""
    lengths = [0.2] * 70 + [0.25] * 70 + [0.3] * 70
    assert quarters_of(tmp_path, lengths, epochs=3)["rising"] > 0.98
    assert quarters_of(tmp_path, lengths)["rising"] < 0.95
    assert quarters_of(tmp_path, [0.2] * 210, epochs=3)["rising"] < 0.7


def test_steps_of_a_gpu_take_as_long_as_it_takes(tmp_path: Path) -> None:
    """Its host submits some at once, waits until there is room, and asks for the loss in one of 20, for no reason."""
    path = tmp_path / "steps.csv"
    lines = []
    for step in range(83):
        host = 0.01 if step < 40 else 0.06 if step % 20 else 0.6
        lines.append(f"{step},0,8,1,0,{host},{host / 2},0.1,0.05,{0.2 * (step == 82)}")
    head = "step,epoch,images,updates,profiled,total,forward,device_total,device_forward,validation"
    path.write_text("\n".join([head, *lines, ""]))
    found = measure_steps(path, device="cuda")
    assert found["step_seconds"]["total"] == pytest.approx(0.1)
    assert found["overall_images_per_second"] == pytest.approx(80 * 8 / (80 * 0.1 + 80 * 0.2 / 83))
    assert found["images_per_second"]["median"] == pytest.approx(80)
    assert found["uneven"]["steps"] == 0
    assert found["quarters"]["seconds"] == pytest.approx([0.1] * 4)
    path.write_text(path.read_text().replace(",0.1,0.05,", ",0.001,0.001,"))  # it waits for its host
    found = measure_steps(path, device="cuda")
    assert found["step_seconds"]["total"] == pytest.approx((37 * 0.01 + 40 * 0.06 + 3 * 0.6) / 80)


def test_a_gpu_that_idles_in_a_few_steps_has_long_ones(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    lines = [f"{step},8,{1.1 if step % 20 == 5 else 0.1},{1.1 if step % 20 == 5 else 0.1}" for step in range(83)]
    path.write_text("\n".join(["step,images,callbacks,device_total", *lines, ""]))
    uneven = measure_steps(path, device="cuda")["uneven"]
    assert (uneven["steps"], uneven["phase"]) == (4, "callbacks")
    assert uneven["extra_seconds"] == pytest.approx(4 / 80)


def test_first_steps_of_epochs_are_compared_with_their_like(tmp_path: Path) -> None:
    """Epochs of eight steps: the last has a small batch, and the first waits for other ranks; one epoch is slow."""
    with (tmp_path / "steps.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, [*COLUMNS, "wait_forward"], restval=0)
        rows.writeheader()
        for step in range(48):
            epoch, place = divmod(step, 8)
            row = {"step": step, "epoch": epoch, "images": 2 if place == 7 else 32, "updates": 1}
            waits = 5.0 * (place == 0)
            forward = (0.1 if place == 7 else 1.0) + waits + 3.0 * (epoch == 4 and place < 4)
            rows.writerow(row | {"forward": forward, "total": forward, "wait_forward": waits})
    assert measure_steps(tmp_path / "steps.csv")["epoch_starts"]["extra"]["forward"] == pytest.approx(0.0)


def test_the_first_steps_of_epochs_are_asked_for_their_time_in_the_kernel_and_stand_for_no_others(
    tmp_path: Path,
) -> None:
    names = ["step", "epoch", "total", "forward", *CPU, "kernel", "page_faults"]
    with (tmp_path / "steps.csv").open("w") as file:
        file.write(",".join(names) + "\n")
        for step in range(64):
            first, place = step % 8 == 0, CPU.index("cpu_forward")
            used = "2.0" if first else "0.1" if step % 5 == 2 else ""
            cells = ["0.0"] * len(CPU) if used else [""] * len(CPU)
            cells[place] = used
            spent, kernel = ("1.0", "1.5,900") if first else ("0.1", "0.0,3" if used else ",")
            file.write(",".join([str(step), str(step // 8), spent, spent, *cells, kernel]) + "\n")
    found = measure_steps(tmp_path / "steps.csv")
    assert found["epoch_starts"]["kernel"] == pytest.approx(0.75)
    assert found["page_faults"] == {"count": 3.0, "kernel": 0.0}
    assert found["cores_used"]["forward"] == pytest.approx(1.0)


def test_what_passes_beside_validations_is_told_without_hooks(tmp_path: Path) -> None:
    with (tmp_path / "steps.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, [*COLUMNS, "after/Audit"], restval=0)
        rows.writeheader()
        for step in range(24):
            gaps = {"validation": 0.5, "between": 3.0, "after/Audit": 1.0} if step % 8 == 7 else {"between": 0.1}
            rows.writerow({"step": step, "epoch": step // 8, "images": 32, "total": 1.0, "forward": 1.0} | gaps)
    told = measure_steps(tmp_path / "steps.csv")["validation_starts"]
    assert told == {"count": 3, "between": pytest.approx(2.0), "within": 0, "kernel": None}


def test_steps_with_more_updates_than_others_are_long_by_design(tmp_path: Path) -> None:
    path, rows = tmp_path / "steps.csv", [(step % 8 == 7, 0.5 if step % 8 == 7 else 0.1) for step in range(83)]
    lines = [f"{step},0,8,{int(updated)},0,{total},{total}" for step, (updated, total) in enumerate(rows)]
    path.write_text("\n".join(["step,epoch,images,updates,profiled,total,optimizer", *lines, ""]))
    assert measure_steps(path)["uneven"]["steps"] == 0
    path.write_text(path.read_text().replace(",8,1,0,", ",8,0,0,"))
    assert measure_steps(path)["uneven"]["steps"] == 10


@pytest.mark.parametrize(
    ("grown", "steady"),
    [((67.9, 49.5, 59.1), True), ((35.9, 44.8, 35.8), True), ((42.2, 36.9, 8.6), False), ((40.0, 30.0, 20.0), False)],
)
def test_memory_that_grows_less_and_less_is_no_leak(grown: tuple[float, ...], steady: bool, tmp_path: Path) -> None:
    """MB from quarter to quarter: of two trainings that keep something of each step, and of two that start up."""
    held = [500.0 + sum(grown[:quarter]) for quarter in range(4) for _ in range(4)]
    lines = [f"{step},0,8,0,1.0,{count * 1e6}" for step, count in enumerate(held)]
    (tmp_path / "steps.csv").write_text("\n".join(["step,epoch,images,profiled,total,memory", *lines, ""]))
    found = measure_steps(tmp_path / "steps.csv")["memory_growth"]["memory"]
    assert found["steady"] == steady
    assert found["last_bytes"] - found["first_bytes"] == pytest.approx(sum(grown) * 1e6)


def test_a_single_long_step_says_nothing_about_the_cores_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"

    def used(*seconds: float) -> float:
        """Where a usual step computes on two cores, and a longer one on one."""
        lines = [
            ",".join(map(str, (step, 0, 8, 1, 0, total, total, *[total * (2 if total < 0.2 else 1)] * len(CPU))))
            for step, total in enumerate([0.1] * 3 + list(seconds))
        ]
        path.write_text("\n".join(["step,epoch,images,updates,profiled,total,forward," + ",".join(CPU), *lines, ""]))
        found: float = measure_steps(path)["cores_used"]["forward"]
        return found

    assert used(*[0.1] * 9, 0.9) == pytest.approx(2.0)
    assert used(*[0.1] * 9, 0.9, 0.9) == pytest.approx(2 * (0.9 + 0.9) / 2.7)  # two of them are no chance
