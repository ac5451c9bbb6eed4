"""Suite ``engines``: its cells, what each delivers, fills or trains, and what is concluded."""

import multiprocessing
from pathlib import Path

import pytest
import torch

from strobe.bench.harness.declare import Done, Input, Trial
from strobe.bench.suites.engines import cells
from strobe.bench.suites.engines import suite as engines
from strobe.bench.suites.engines.suite import ALONE, BUFFERS, BY_HAND
from support.suite_parts import NETWORK, declared
from support.suite_records import record_of

TINY = (
    "data.tiles_per_class=10",
    "data.batch_size=4",
    NETWORK,
)


@pytest.fixture
def trial(sample_root: Path, tmp_path: Path) -> Trial:
    given = ("data=sample", f"data.root={sample_root}", "trainer.accelerator=cpu", "logger=csv", *TINY)
    return Trial(tmp_path, 0, given, Input("tiles", facts={"packs": str(tmp_path / "packs")}), tmp_path)


def test_every_engine_is_held_against_a_dataloader_by_hand_and_training_against_the_model_alone() -> None:
    suite = declared("engines", "threads=2")
    tables = [table.name for table in suite.tables]
    assert tables == ["tifffile", "native", "buffers", "training"]
    rows = [(cell.row, cell.column) for cell in suite.cells if cell.table == "native"]
    assert rows[:4] == [("0", BY_HAND), ("0", "torch"), ("0", "spdl"), ("0", "resident")]
    assert [row for row, column in rows if column == BY_HAND] == ["0", "1", "2", "4"]
    assert len(rows) == 4 * 3 + 1  # resident ones have no workers
    known = {cell.name: cell for cell in suite.cells}
    for cell in suite.cells:
        if cell.against:
            other = known[cell.against]
            assert (other.table, other.row, other.threads) == (cell.table, cell.row, cell.threads)
            assert other.column == BUFFERS[cell.column] if cell.table == "buffers" else other.column in {BY_HAND, ALONE}
    assert {cell.row for cell in suite.cells if cell.table == "training"} == {"2", "1"}


def test_tables_loaders_and_numbers_can_be_chosen() -> None:
    suite = declared(
        "engines",
        "threads=2",
        "suite.tables=[engines]",
        "suite.loaders=[skimage]",
        "suite.workers=[3]",
        "data.batch_size=8",
    )
    assert [cell.name for cell in suite.cells] == [
        f"skimage, 3, {name}, 2 threads, warm" for name in (BY_HAND, "torch", "spdl")
    ]
    assert suite.tables[0].title == "Batches of 8, loader=skimage"
    buffers = declared("engines", "threads=2", "suite.tables=[buffers]", "suite.batch_sizes=[16]").cells
    assert [(cell.row, cell.column) for cell in buffers] == [("16", way) for way in BUFFERS]
    assert {cell.table for cell in declared("engines", "threads=2", "data=cifar10").cells} == {
        "memory",
        "buffers",
        "training",
    }


@pytest.mark.parametrize(
    ("engine", "workers"), [(BY_HAND, 0), (BY_HAND, 1), ("torch", 1), ("spdl", 1), ("resident", 0)]
)
def test_engines_deliver_whole_batches_and_leave_nothing_running(trial: Trial, engine: str, workers: int) -> None:
    with cells.deliver(trial, loader="tifffile", engine=engine, workers=workers) as work:
        assert work.warm_up is not None
        work.warm_up()
        done = work.repeat()
        assert isinstance(done, Done)
        assert done.images == 4
        assert done.seconds
        assert len(work.files) == 80
        assert len(multiprocessing.active_children()) == (workers if engine in {BY_HAND, "torch"} else 0)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("alone", [True, False])
def test_a_training_and_its_ceiling_are_seconds_of_a_step(trial: Trial, alone: bool) -> None:
    before = torch.get_num_threads()
    try:
        with cells.train(trial, loader="tifffile engine=resident", threads=1, seconds=0.1, alone=alone) as work:
            done = work.repeat()
    finally:
        torch.set_num_threads(before)
    assert isinstance(done, Done)
    assert done.images == 4
    assert 0 < (done.seconds or 0) < 5


def test_what_is_concluded_names_the_best_and_the_share_of_the_ceiling() -> None:
    suite = declared(
        "engines", "threads=2", "suite.loaders=[native]", "suite.workers=[0,2]", "suite.batch_sizes=[32]", "quick=true"
    )
    known = {(cell.table, cell.row, cell.column): cell.name for cell in suite.cells}
    rates: dict[tuple[str, str, str], float | str] = {
        ("native", "0", BY_HAND): 1000.0,
        ("native", "0", "resident"): 9000.0,
        ("native", "2", BY_HAND): 1500.0,
        ("native", "2", "spdl"): "spdl is missing",
        ("buffers", "32", "fresh"): 1000.0,
        ("buffers", "32", "reused"): 2000.0,
        ("training", "2", ALONE): 200.0,
        ("training", "2", "native engine=resident"): 100.0,
    }
    engine, buffers, training = engines.conclude(record_of(suite, {known[key]: rate for key, rate in rates.items()}))
    assert engine.startswith("loader=native is fastest with resident, 0 workers: ")
    assert engine.endswith("times the DataLoader by hand.")
    assert buffers.startswith("Batches of 32, reused: ")
    assert round(float(buffers.partition(": ")[2].split()[0])) == 2
    assert buffers.endswith("times as fast as fresh.")
    assert training.startswith("Training with loader=native engine=resident, 2 threads: ")
    assert round(float(training.partition("images/s, ")[2].split()[0]), 1) == 0.5
