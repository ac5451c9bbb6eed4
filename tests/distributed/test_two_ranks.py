"""Two processes on the CPU (gloo), started by Lightning and by torchrun."""

import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from strobe import pack
from strobe.app.storage.serving import free_ports
from strobe.callbacks.tracefile import read_trace
from strobe.records.run import read_summary
from strobe.records.step_table import read_table
from support.processes import begin, ended
from support.runs import ALL, CHECKPOINTS, Train, weights
from support.stored import stored

PROBE = Path(__file__).with_name("probe.py")
LAUNCHERS = {"lightning": [], "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]}
COMMON = (
    "trainer=ddp",
    "trainer.accelerator=cpu",
    "trainer.enable_progress_bar=false",
    "trainer.enable_checkpointing=false",
    "trainer.num_sanity_val_steps=0",
    "trainer.max_epochs=1",
    "data.batch_size=9",
    "profiler=none",
    "ceilings=false",
    "model._target_=strobe.validation.injected_faults.SmallClassifier",
)
CYCLE = ("profiler.repeat=1", "profiler.active=3")


@pytest.fixture
def start(tmp_path: Path, sample_root: Path) -> Callable[..., str]:
    """Start ranks and return what they printed."""

    def run(launcher: str, *overrides: str, **variables: str) -> str:
        data = [] if "data=eurosat" in overrides else [f"data.root={sample_root}", "data.tiles_per_class=10"]
        given = [*COMMON, *data, *overrides]
        process = begin(*LAUNCHERS[launcher], str(PROBE), *given, cwd=tmp_path, PROBE=str(tmp_path), **variables)
        return ended(process, -signal.SIGKILL if "KILL" in variables else 0)

    return run


def read_by_rank(folder: Path) -> list[list[str]]:
    return [(folder / f"rank{rank}.txt").read_text().split() for rank in (0, 1)]


@pytest.mark.parametrize("launcher", ["lightning", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_each_tile_is_read_once_one_record_is_written_and_ceilings_are_those_of_both(
    launcher: str, start: Callable[..., str], tmp_path: Path, sample_root: Path
) -> None:
    given = ("profiler=trace", *CYCLE, "data.batch_size=4", "ceilings=true", "ceilings_seconds=0.1")
    output = start(launcher, "trainer.devices=2", "hydra.run.dir=run", *given)
    tiles = {str(path) for path in sample_root.glob("tiles/seed42-10/*/*.tif")}
    first, second = read_by_rank(tmp_path)
    assert Counter(first + second) == Counter(tiles)
    assert abs(len(first) - len(second)) <= 3  # one for each of the three splits
    assert output.count("run completed") == 1
    summary = read_summary(tmp_path / "run" / "summary.json")
    assert summary["world_size"] == 2
    assert len(list(tmp_path.glob("**/summary.json"))) == 1
    rows = (tmp_path / "run" / "steps.csv").read_text().splitlines()[1:]
    assert len(rows) == 80 // (2 * 4)
    assert len(read_table(tmp_path / "run" / "ranks" / "1.csv")) == len(rows)
    assert (summary["ranks"]["ranks"], summary["ranks"]["coverage"]) == ([0, 1], 1.0)
    assert not (tmp_path / "run" / "begun.json").exists()
    traces = sorted((tmp_path / "run" / "tensorboard").glob("*.pt.trace.json.gz"))
    assert sorted(str(trace.relative_to(tmp_path / "run")) for trace in traces) == summary["traces"]
    assert sorted(re.findall(r"_rank(\d)\.", " ".join(summary["traces"]))) == ["0", "1"]
    for trace in traces:
        steps = [event for event in read_trace(trace)["traceEvents"] if event["name"].startswith("ProfilerStep#")]
        assert sorted(step["name"] for step in steps) == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    ceilings = summary["ceilings"]
    assert ceilings["reason"] is None
    for side in ("loader", "model"):
        low, high = ceilings["intervals"][side]
        assert 0 < low <= ceilings[side] <= high
    assert ceilings["joint"] == pytest.approx(1 / (1 / ceilings["loader"] + 1 / ceilings["model"]))
    measured = [(one["side"], one["images_per_step"]) for one in ceilings["alternatives"]]
    assert measured == [("model", 2 * 6)]
    assert "Not measured with data.batch_size=8: model: rank 1: RuntimeError: out of memory" in output


@pytest.mark.slow
def test_a_rank_that_is_slow_is_the_verdict_of_the_application(start: Callable[..., str], tmp_path: Path) -> None:
    given = ("trainer.devices=2", "data.batch_size=1", "test=false", "hydra.run.dir=run")
    output = start("lightning", *given, "trainer.limit_val_batches=1", NAP="0.1")
    summary = read_summary(tmp_path / "run" / "summary.json")
    joined = summary["ranks"]
    assert (joined["slow"], joined["phase"], joined["pattern"]) == ([1], "data_wait", "constant")
    assert summary["findings"][0]["cause"] == "straggler"
    assert summary["verdict"].startswith("Rank 1 waits for data ")
    assert summary["verdict"] in " ".join(output.split())


@pytest.mark.slow
def test_two_nodes_train_from_storage_and_each_object_is_read_once(
    storage: str, sample_root: Path, tmp_path: Path
) -> None:
    root = stored(storage, sample_root / "tiles" / "seed42-10", "nodes")
    (port,) = free_ports(1)
    launcher = ("-m", "torch.distributed.run", "--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}")
    given = (*COMMON, "data=eurosat", f"data.root={root}", f"data.endpoint={storage}", "loader=tifffile")
    given += ("engine=litdata", "trainer.devices=1", "trainer.num_nodes=2", "data.batch_size=4", "hydra.run.dir=run")
    given += ("ceilings=true", "ceilings_seconds=0.1")
    nodes = [
        begin(*launcher, f"--node-rank={node}", str(PROBE), *given, cwd=tmp_path, PROBE=str(tmp_path))
        for node in (0, 1)
    ]
    assert sum(ended(node).count("run completed") for node in nodes) == 1
    first, second = read_by_rank(tmp_path)
    tiles = (sample_root / "tiles" / "seed42-10").glob("*/*.tif")
    assert sorted(first + second) == sorted(f"{root}/{path.parent.name}/{path.name}" for path in tiles)
    assert abs(len(first) - len(second)) <= 3
    summary = read_summary(tmp_path / "run" / "summary.json")
    assert summary["world_size"] == summary["ceilings"]["storage"]["ranks"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_two_ranks_train_from_shards_in_storage_as_from_the_files(
    storage: str, start: Callable[..., str], sample_root: Path, tmp_path: Path, *, stream: bool
) -> None:
    root, out = stored(storage, sample_root / "tiles" / "seed42-10", "sharded"), f"s3://strobe/shards-of-ranks-{stream}"
    there = ("data=eurosat", f"data.root={root}", f"data.endpoint={storage}")
    pack.main(["--shards", out, *there])
    shards = ("loader=packed", f"loader.shards={out}", f"loader.stream={stream}", "loader.directory=packs")
    for name, loader in (("files", ("loader=native",)), ("shards", shards)):
        start("lightning", *there, *loader, "trainer.devices=2", CHECKPOINTS, ALL, f"hydra.run.dir={name}")
    found = weights(tmp_path / "shards")
    assert all(torch.equal(value, found[name]) for name, value in weights(tmp_path / "files").items())
    assert len([*tmp_path.glob("packs/shards-*")]) == (not stream)


@pytest.mark.slow
def test_the_command_starts_the_ranks_and_one_prints(sample_root: Path, tmp_path: Path) -> None:
    given = [*COMMON, "trainer.devices=2", f"data.root={sample_root}", "data.tiles_per_class=10"]
    given += ["ceilings_seconds=0.1", "--json"]
    said = ended(begin("-m", "strobe.ceilings", *given, cwd=tmp_path))
    record = json.loads(said[said.index("{\n") :])
    assert record["loader"] > 0 < record["model"]
    assert (record["reason"], said.count("Measuring loader")) == (None, 1)


@pytest.mark.slow
def test_metrics_are_those_of_one_process(start: Callable[..., str], train: Train, tmp_path: Path) -> None:
    """Untrained weights of one seed, tested by two ranks and by one."""
    untrained = ("trainer.limit_train_batches=0", "trainer.limit_test_batches=null")
    start("lightning", *untrained, "trainer.devices=2", "hydra.run.dir=two")
    one = train(*untrained, "data.batch_size=9", "test=true", name="one")
    assert one.code == 0, one.output
    two = read_summary(tmp_path / "two" / "summary.json")["metrics"]
    assert one.summary["metrics"] == pytest.approx(two, rel=1e-4)
    assert "test/accuracy" in two


def test_a_mistake_is_told_once_and_before_other_ranks_begin(train: Train, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    ended = train(*COMMON, "trainer.devices=2", "data=eurosat", f"data.root={tmp_path}", quick=False)
    assert ended.code == 1
    assert ended.output.count("holds no <Class>/*.tif") == 1


@pytest.fixture(params=["disk", "storage"])
def tiles_of_a_run(request: pytest.FixtureRequest, sample_root: Path) -> list[str]:
    """Overrides for where its tiles lie."""
    if request.param == "disk":
        return []
    endpoint = request.getfixturevalue("storage")
    root = stored(endpoint, sample_root / "tiles" / "seed42-10", "killed")
    given = ["data=eurosat", f"data.root={root}", f"data.endpoint={endpoint}", "loader=tifffile"]
    return [*given, "engine=litdata", "engine.num_workers=0"]  # workers would read ahead of training


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "size", "killed"), [(2, 1, 4, 12), (1, 2, 4, 12), (1, 2, 3, 78)])
def test_a_run_that_was_killed_goes_on_with_other_ranks_and_each_tile_is_trained_on_once(  # noqa: PLR0917
    before: int,
    after: int,
    size: int,
    killed: int,
    tiles_of_a_run: list[str],
    start: Callable[..., str],
    tmp_path: Path,
) -> None:
    common = [
        *tiles_of_a_run,
        "hydra.run.dir=run",
        "trainer.limit_val_batches=0",
        "test=false",
        f"data.batch_size={size}",
    ]
    common += ["trainer.enable_checkpointing=true", "checkpoint.save=resume", "checkpoint.every_n_steps=1"]
    start("lightning", *common, f"trainer.devices={before}", KILL=str(killed))
    first = [path for rank in range(before) for path in (tmp_path / f"rank{rank}.txt").read_text().split()]
    for path in tmp_path.glob("rank*.txt"):
        path.unlink()
    start("lightning", *common, f"trainer.devices={after}", "ckpt_path=run/checkpoints/last.ckpt")
    rest = [path for rank in range(after) for path in (tmp_path / f"rank{rank}.txt").read_text().split()]
    assert len(first) == killed * before
    assert len({*first, *rest}) == len(first) + len(rest) == 80
