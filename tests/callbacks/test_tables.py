"""Operator tables of real profiles, against torch's own accumulation over the same program."""

import copy
import csv
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from strobe.callbacks.tables import OperatorTables

ALL = {"record_shapes": True, "profile_memory": True, "with_flops": True}
TWO, THREE = "[[4], [2, 8], [8, 4], [], []]", "[[4], [3, 8], [8, 4], [], []]"  # batch sizes
TIMES = ("cpu_time_total", "self_cpu_time_total")
ENDS = (".csv", ".txt")
UNITS = {"calls": "count", "flops": "flops", "cpu_bytes": "cpu_memory_usage", "self_cpu_bytes": "self_cpu_memory_usage"}


def program(ready: Callable[[profile], Any], cycles: int = 2, device: str = "cpu", **options: Any) -> profile:
    """Profile two steps a cycle of a small training, whose last step sees another batch size."""
    layer = torch.nn.Linear(8, 4, device=device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device != "cpu")
    plan = schedule(wait=0, warmup=1, active=2, repeat=cycles)
    with profile(activities=activities, schedule=plan, on_trace_ready=ready, **options) as profiler:
        for step in range(3 * cycles):
            with record_function("forward"):
                loss = layer(torch.ones(2 + step // 5, 8, device=device)).sum()
            with record_function("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    return profiler


def recorded(cycles: int = 2, device: str = "cpu", **options: Any) -> OperatorTables:
    """The tables of `program` without `acc_events`."""
    tables = OperatorTables()

    def ready(profiler: profile) -> None:
        tables.add(profiler.profiler, steps=2)
        profiler.profiler = None

    program(ready, cycles, device, **options)
    return tables


def figures(rows: Any, names: tuple[str, ...]) -> dict[tuple[str, str], list[float]]:
    kept = [row for row in rows if row.key != "ProfilerStep*"]
    found = {(row.key, str(row.input_shapes)): [getattr(row, name) for name in names] for row in kept}
    assert len(found) == len(kept)
    return found


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("most", [0, 1, 8])
def test_figures_and_shapes_are_those_of_acc_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of one recording: two differ in their times, and in the bytes that an allocation is rounded up to."""
    monkeypatch.setattr("strobe.callbacks.tables.MOST_CYCLES", most)
    tables = OperatorTables()

    def ready(profiler: profile) -> None:
        cycle = copy.copy(profiler.profiler)  # the same raw results, as if they had not been parsed yet
        cycle._function_events = None
        tables.add(cycle)

    accumulated = program(ready, cycles=3, acc_events=True, **ALL)
    tables.write(tmp_path)
    for name, by_shape in (("operators_by_shape", True), ("operators_by_cpu_time", False)):
        rows = {(r["name"], r.get("input_shapes", "")): r for r in table(tmp_path / f"{name}.csv")}
        averages = accumulated.key_averages(group_by_input_shape=by_shape)
        counted = {key: [int(row[column]) for column in UNITS] for key, row in rows.items()}
        assert counted == figures(averages, tuple(UNITS.values()))
        for key, times in figures(averages, TIMES).items():
            assert [float(rows[key][column]) for column in ("cpu_us", "self_cpu_us")] == pytest.approx(times, abs=0.001)
        own = [float(row["self_cpu_us"]) for row in rows.values()]
        assert own == sorted(own, reverse=True)
        if by_shape:
            assert {("aten::addmm", TWO), ("aten::addmm", THREE)} <= rows.keys()


def test_a_cycle_survives_its_trace_and_the_next_cycle(tmp_path: Path) -> None:
    cycles = []

    def ready(profiler: profile) -> None:
        profiler.export_chrome_trace(str(tmp_path / "trace.json"))
        cycles.append(profiler.profiler)
        profiler.profiler = None

    program(ready, record_shapes=True)
    products = []
    for cycle in cycles:
        tables = OperatorTables()
        tables.add(cycle)
        tables.write(tmp_path)
        rows = table(tmp_path / "operators_by_shape.csv")
        products.append({row["input_shapes"]: row["calls"] for row in rows if row["name"] == "aten::addmm"})
    assert products == [{TWO: "2"}, {TWO: "1", THREE: "1"}]


def test_adding_parses_nothing_and_many_cycles_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def events() -> int:
        gc.collect()
        return sum(type(held) is FunctionEvent for held in gc.get_objects())

    before = events()
    kept: list[weakref.ref[Any]] = []
    parsed = []
    monkeypatch.setattr("strobe.callbacks.tables.MOST_CYCLES", 2)
    tables = OperatorTables()

    def ready(profiler: profile) -> None:
        tables.add(profiler.profiler)
        parsed.append(profiler.profiler._function_events is not None)
        kept.append(weakref.ref(profiler.profiler))
        profiler.profiler = None

    program(ready, cycles=4)
    assert parsed == [False] * 4
    assert [cycle() is not None for cycle in kept] == [False, False, True, True]
    assert events() <= before


@pytest.mark.parametrize(
    ("options", "names", "columns"),
    [
        ({}, {"cpu_time"}, []),
        ({"record_shapes": True}, {"cpu_time", "shape"}, []),
        ({"profile_memory": True}, {"cpu_time", "memory"}, ["self_cpu_bytes", "cpu_bytes"]),
        (ALL, {"cpu_time", "shape", "memory"}, ["self_cpu_bytes", "cpu_bytes", "flops"]),
    ],
    ids=["plain", "shapes", "memory", "all"],
)
def test_only_what_was_recorded_is_written(
    tmp_path: Path, options: dict[str, bool], names: set[str], columns: list[str]
) -> None:
    directory = tmp_path / "new" / "tables"
    written = recorded(**options).write(directory)
    assert sorted(path.name for path in written) == sorted(f"operators_by_{n}{end}" for n in names for end in ENDS)
    assert set(directory.iterdir()) == set(written)
    rows = table(directory / "operators_by_cpu_time.csv")
    assert [*rows[0]] == ["name", "device", "annotation", "calls", "self_cpu_us", "cpu_us", *columns]


def test_the_steps_own_ranges_are_left_out_and_phases_are_kept(tmp_path: Path) -> None:
    recorded().write(tmp_path)
    rows = [(r["name"], r["calls"], r["annotation"]) for r in table(tmp_path / "operators_by_cpu_time.csv")]
    assert not [name for name, _, _ in rows if name.startswith("ProfilerStep")]
    assert {("forward", "4", "1"), ("aten::addmm", "4", "0")} < set(rows)


def test_text_says_what_it_is(tmp_path: Path) -> None:
    tables = recorded(**ALL)
    tables.write(tmp_path)
    text = (tmp_path / "operators_by_memory.txt").read_text()
    first, empty, _, header = text.splitlines()[:4]
    count = len(table(tmp_path / "operators_by_memory.csv"))
    assert first == f"Operators by self CPU memory, over 2 cycles and 4 steps: {count} of {count} rows."
    assert empty == ""
    assert {"Name", "Self CPU Mem", "# of Calls"} <= {*map(str.strip, header.split("  "))}
    assert (tables.cycles, tables.steps) == (2, 4)


def test_writing_again_adds_the_new_cycles(tmp_path: Path) -> None:
    tables = OperatorTables()
    for calls in ("4", "8"):
        program(lambda profiler: (tables.add(profiler.profiler), setattr(profiler, "profiler", None)))
        tables.write(tmp_path)
        rows = table(tmp_path / "operators_by_cpu_time.csv")
        assert ("aten::addmm", calls) in [(row["name"], row["calls"]) for row in rows]


def test_no_cycle_leaves_nothing(tmp_path: Path) -> None:
    assert OperatorTables().write(tmp_path / "tables") == []
    assert OperatorTables().markdown() == ""
    assert not [*tmp_path.iterdir()]


def test_errors_are_the_callers(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("a file")
    with pytest.raises(OSError, match="tables"):
        recorded(cycles=1).write(tmp_path / "tables")


def with_kernels() -> Any:
    """A cycle as on a GPU: torch's events of one product, its kernel, and a range that the GPU repeats."""
    cuda: Any = {"use_device": "cuda", "input_shapes": [], "stack": [], "overload_name": ""}
    product = FunctionEvent(1, "aten::mm", 7, 10, 30, **cuda)
    product.append_kernel("gemm", 0, 40)
    forward = FunctionEvent(2, "forward", 7, 0, 90, is_user_annotation=True, **cuda)
    events = [forward, product]
    for number, name in ((3, "gemm"), (4, "forward"), (5, "ProfilerStep*")):
        kind = {"device_type": DeviceType.CUDA, "is_user_annotation": name != "gemm"}
        events.append(FunctionEvent(number, name, 8, 20, 60, **cuda, **kind))
    cycle: Any = torch.autograd.profiler.profile(use_kineto=True, profile_memory=True)
    cycle.use_device = "cuda"
    cycle._function_events = EventList(events, use_device="cuda", profile_memory=True)
    cycle._function_events._build_tree()
    return cycle


def test_device_time_is_sorted_and_counted_once(tmp_path: Path) -> None:
    tables = OperatorTables()
    tables.add(with_kernels())
    names = {path.name for path in tables.write(tmp_path)}
    assert {"operators_by_device_time.csv", "operators_by_device_time.txt"} < names
    rows = table(tmp_path / "operators_by_device_time.csv")
    assert [(row["name"], row["device"], row["self_device_us"]) for row in rows] == [
        ("aten::mm", "cpu", "40.000"),
        ("gemm", "cuda", "40.000"),
        ("forward", "cuda", "40.000"),
        ("forward", "cpu", "0.000"),
    ]
    assert "Self CUDA time total: 40.000us" in (tmp_path / "operators_by_device_time.txt").read_text()
    markdown = tables.markdown()
    assert markdown.startswith("Operators by self device time, over 1 cycle: 1 of 1 rows.")
    assert "| `aten::mm` | 100.0% | 0.04 |" in markdown
    assert "gemm" not in markdown


@pytest.mark.gpu
def test_device_time_of_a_real_device(tmp_path: Path) -> None:
    tables = recorded(device="cuda", **ALL)
    tables.write(tmp_path)
    rows = table(tmp_path / "operators_by_device_time.csv")
    assert any(row["device"] == "cuda" and row["annotation"] == "0" for row in rows)
    product = next(row for row in rows if row["name"] == "aten::addmm")
    assert float(product["self_device_us"]) > 0
    assert "self device time" in tables.markdown()
