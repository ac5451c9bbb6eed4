"""Which operators changed between two runs, from tables as ``callbacks.tables`` writes them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from strobe.callbacks.tables import OperatorTables
from strobe.compare.operators import changed_operators
from strobe.records.files import write_summary
from strobe.records.run import SCHEMA

HOST = "operators_by_cpu_time", "self_cpu_us,cpu_us"
DEVICE = "operators_by_device_time", "self_cpu_us,cpu_us,self_device_us,device_us"
HOST_OF_GPU = "operators_by_cpu_time", DEVICE[1]
KEYS = ("name", "before_us", "after_us", "change_us")


CONV = "conv,cpu,0,4,4000,4000"


def table(run: Path, *rows: str, kind: tuple[str, str] = HOST, over: str = "2 cycles and 4 steps") -> Path:
    """A run with a table of these rows: name, device, annotation, calls, and times."""
    name, times = kind
    tables = run / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    (tables / f"{name}.csv").write_text("\n".join([f"name,device,annotation,calls,{times}", *rows, ""]))
    (tables / f"{name}.txt").write_text(f"Operators by self time, over {over}: {len(rows)} of {len(rows)} rows.\n")
    return run


def steps(run: Path, images: int = 10, world_size: int = 1) -> Path:
    """The run's record and its steps, of which the last one was not profiled and held other images."""
    write_summary(run / "summary.json", {"schema": SCHEMA, "world_size": world_size, "batch_size": images})
    lines = [f"{step},0,{images},{int(step < 4)},0.1" for step in range(4)] + ["4,0,1,0,0.1"]
    (run / "steps.csv").write_text("\n".join(["step,epoch,images,profiled,total", *lines, ""]))
    return run


def changes(before: Path, after: Path) -> list[tuple[Any, ...]]:
    """The device, then each row's values."""
    found = changed_operators(before, after)
    assert found is not None
    return [found["device"], *(tuple(row[key] for key in KEYS) for row in found["rows"])]


def test_changes_are_of_one_image(tmp_path: Path) -> None:
    before = steps(table(tmp_path / "a", "conv,cpu,0,8,4000,9000", "relu,cpu,0,8,400,400", "same,cpu,0,4,40,40"))
    rows = ["conv,cpu,0,8,4000,9000", "conv,cpu,0,1,800,800", "read,cpu,0,2,80,80", "same,cpu,0,4,40,40"]
    after = steps(table(tmp_path / "b", *rows, over="1 cycle and 2 steps"), 20)
    conv, relu = ("conv", 100.0, 120.0, 20.0), ("relu", 10.0, 0.0, -10.0)
    assert changes(before, after) == ["cpu", conv, relu, ("read", 0.0, 2.0, 2.0), ("same", 1.0, 1.0, 0.0)]
    ranks = steps(table(tmp_path / "ranks", CONV), 20, world_size=2)  # images of other ranks do not count
    alone = steps(table(tmp_path / "alone", CONV))
    (alone / "steps.csv").unlink()  # then the batch size counts
    assert changes(alone, ranks) == ["cpu", ("conv", 100.0, 100.0, 0.0)]


def test_only_the_largest_are_told_and_no_phases(tmp_path: Path) -> None:
    rows = [f"op{number},cpu,0,1,{number * 1000},0" for number in range(40)] + ["forward,cpu,1,4,99000000,99000000"]
    found = changes(steps(table(tmp_path / "a", *rows)), steps(table(tmp_path / "b", "op1,cpu,0,1,1000,0")))
    assert [row[0] for row in found[1:]] == [f"op{number}" for number in range(39, 24, -1)]


def test_a_gpu_s_own_time_is_compared_where_both_have_one(tmp_path: Path) -> None:
    runs = []
    for own in ("8000", "9200"):
        rows = [f"conv,cpu,0,4,40,90,{own},{own}", f"kernel,cuda,0,4,0,0,{own},{own}", f"conv,cuda,1,4,0,0,{own},{own}"]
        run = table(table(tmp_path / own, *rows, kind=DEVICE), rows[0], kind=HOST_OF_GPU)
        runs.append(steps(run))
    assert changes(*runs) == ["gpu", ("conv", 200.0, 230.0, 30.0)]
    assert changes(steps(table(tmp_path / "cpu", CONV)), runs[0]) == ["cpu", ("conv", 100.0, 1.0, -99.0)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: (run / "tables" / "operators_by_cpu_time.csv").unlink(),
        lambda run: (run / "tables" / "operators_by_cpu_time.csv").write_text("name,device\nconv"),
        lambda run: (run / "tables" / "operators_by_cpu_time.txt").unlink(),
        lambda run: table(run, CONV, over="2 cycles"),
        table,
        lambda run: [(run / name).unlink() for name in ("steps.csv", "summary.json")],
    ],
    ids=["no table", "damaged", "no headline", "unknown steps", "no rows", "unknown images"],
)
def test_what_cannot_be_compared_gives_nothing(damage: object, tmp_path: Path) -> None:
    whole, broken = (steps(table(tmp_path / name, CONV)) for name in ("whole", "broken"))
    assert changed_operators(whole, broken) is not None
    assert callable(damage)
    damage(broken)
    assert changed_operators(whole, broken) is None
    assert changed_operators(broken, whole) is None
    assert changed_operators(whole, tmp_path / "nowhere") is None


def test_tables_of_a_real_profile_are_read(tmp_path: Path) -> None:
    for name, work in (("a", torch.sin), ("b", torch.cos)):
        tables = OperatorTables()
        for _ in range(2):
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                work(torch.ones(1000))
            tables.add(profiler.profiler, steps=3)
        tables.write(tmp_path / name / "tables")
        steps(tmp_path / name, 8)
    _, *rows = changes(tmp_path / "a", tmp_path / "b")
    own = {name: (before, after, change) for name, before, after, change in rows}
    assert {"aten::sin", "aten::cos", "aten::ones"} <= own.keys()
    before, after, change = own["aten::sin"]
    assert after == 0.0 == own["aten::cos"][0]
    assert change == -before < 0
    written = (tmp_path / "a" / "tables" / "operators_by_cpu_time.csv").read_text().splitlines()
    times = [float(line.split(",")[4]) for line in written if line.startswith("aten::sin,")]
    assert before == pytest.approx(sum(times) / (2 * 3 * 8))
