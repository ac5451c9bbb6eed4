"""Which operators changed between two runs, from tables as ``callbacks.tables`` writes them."""

from pathlib import Path

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


def table(run: Path, rows: list[str], kind: tuple[str, str] = HOST, over: str = "2 cycles and 4 steps") -> Path:
    """A run with a table of these rows: name, device, annotation, calls, and times."""
    name, times = kind
    tables = run / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    (tables / f"{name}.csv").write_text("\n".join([f"name,device,annotation,calls,{times}", *rows, ""]))
    (tables / f"{name}.txt").write_text(f"Operators by self time, over {over}: {len(rows)} of {len(rows)} rows.\n")
    return run


def steps(run: Path, images: int, world_size: int = 1, batch_size: int | None = None) -> Path:
    """The run's record and its steps, of which the last one was not profiled and held other images."""
    write_summary(
        run / "summary.json", {"schema": SCHEMA, "world_size": world_size, "batch_size": batch_size or images}
    )
    lines = [f"{step},0,{images},{int(step < 4)},0.1" for step in range(4)] + ["4,0,1,0,0.1"]
    (run / "steps.csv").write_text("\n".join(["step,epoch,images,profiled,total", *lines, ""]))
    return run


def test_changes_are_of_one_image(tmp_path: Path) -> None:
    before = steps(table(tmp_path / "a", ["conv,cpu,0,8,4000,9000", "relu,cpu,0,8,400,400", "same,cpu,0,4,40,40"]), 10)
    rows = ["conv,cpu,0,8,4000,9000", "conv,cpu,0,1,800,800", "read,cpu,0,2,80,80", "same,cpu,0,4,40,40"]
    after = steps(table(tmp_path / "b", rows, over="1 cycle and 2 steps"), 20)
    assert changed_operators(before, after) == {
        "device": "cpu",
        "rows": [
            {"name": "conv", "before_us": 100.0, "after_us": 120.0, "change_us": 20.0},
            {"name": "relu", "before_us": 10.0, "after_us": 0.0, "change_us": -10.0},
            {"name": "read", "before_us": 0.0, "after_us": 2.0, "change_us": 2.0},
            {"name": "same", "before_us": 1.0, "after_us": 1.0, "change_us": 0.0},
        ],
    }


def test_only_the_largest_are_told_and_no_phases(tmp_path: Path) -> None:
    rows = [f"op{number},cpu,0,1,{number * 1000},0" for number in range(40)] + ["forward,cpu,1,4,99000000,99000000"]
    before, after = steps(table(tmp_path / "a", rows), 10), steps(table(tmp_path / "b", ["op1,cpu,0,1,1000,0"]), 10)
    found = changed_operators(before, after)
    assert found is not None
    assert [row["name"] for row in found["rows"]] == [f"op{number}" for number in range(39, 24, -1)]


def test_a_gpu_s_own_time_is_compared_where_both_have_one(tmp_path: Path) -> None:
    rows = ["conv,cpu,0,4,40,90,8000,8000", "kernel,cuda,0,4,0,0,8000,8000", "conv,cuda,1,4,0,0,8000,8000"]
    gpu = steps(table(table(tmp_path / "gpu", rows, DEVICE), rows[:1], HOST_OF_GPU), 10)
    slower = [row.replace("8000", "9200") for row in rows]
    other = steps(table(table(tmp_path / "other", slower, DEVICE), slower[:1], HOST_OF_GPU), 10)
    found = changed_operators(gpu, other)
    assert found == {
        "device": "gpu",
        "rows": [{"name": "conv", "before_us": 200.0, "after_us": 230.0, "change_us": 30.0}],
    }
    cpu = steps(table(tmp_path / "cpu", ["conv,cpu,0,4,4000,9000"]), 10)
    assert changed_operators(cpu, gpu) == {
        "device": "cpu",
        "rows": [{"name": "conv", "before_us": 100.0, "after_us": 1.0, "change_us": -99.0}],
    }


def test_images_of_other_ranks_do_not_count(tmp_path: Path) -> None:
    alone = steps(table(tmp_path / "a", ["conv,cpu,0,4,4000,4000"]), 10)
    ranks = steps(table(tmp_path / "b", ["conv,cpu,0,4,4000,4000"]), 20, world_size=2)
    found = changed_operators(alone, ranks)
    assert found is not None
    assert found["rows"] == [{"name": "conv", "before_us": 100.0, "after_us": 100.0, "change_us": 0.0}]


def test_without_steps_the_batch_size_counts(tmp_path: Path) -> None:
    whole = steps(table(tmp_path / "a", ["conv,cpu,0,4,4000,4000"]), 99, batch_size=10)
    (whole / "steps.csv").unlink()
    found = changed_operators(whole, whole)
    assert found is not None
    assert found["rows"][0]["before_us"] == 100.0


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: (run / "tables" / "operators_by_cpu_time.csv").unlink(),
        lambda run: (run / "tables" / "operators_by_cpu_time.csv").write_text("name,device\nconv"),
        lambda run: (run / "tables" / "operators_by_cpu_time.txt").unlink(),
        lambda run: table(run, ["conv,cpu,0,4,4000,4000"], over="2 cycles"),
        lambda run: table(run, []),
        lambda run: [(run / name).unlink() for name in ("steps.csv", "summary.json")],
    ],
    ids=["no table", "damaged", "no headline", "unknown steps", "no rows", "unknown images"],
)
def test_what_cannot_be_compared_gives_nothing(damage: object, tmp_path: Path) -> None:
    whole, broken = (steps(table(tmp_path / name, ["conv,cpu,0,4,4000,4000"]), 10) for name in ("whole", "broken"))
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
    found = changed_operators(tmp_path / "a", tmp_path / "b")
    assert found is not None
    rows = {row["name"]: row for row in found["rows"]}
    assert {"aten::sin", "aten::cos", "aten::ones"} <= rows.keys()
    assert rows["aten::sin"]["after_us"] == 0.0 == rows["aten::cos"]["before_us"]
    assert rows["aten::sin"]["change_us"] == -rows["aten::sin"]["before_us"] < 0
    written = (tmp_path / "a" / "tables" / "operators_by_cpu_time.csv").read_text().splitlines()
    own = [line.split(",")[4] for line in written if line.startswith("aten::sin,")]
    assert rows["aten::sin"]["before_us"] == pytest.approx(sum(map(float, own)) / (2 * 3 * 8))
