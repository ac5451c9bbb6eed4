"""``suite=workers``: the cells, what the pipelines deliver and leave behind, and what is concluded."""

import contextlib
import multiprocessing
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.bench.harness.declare import Done, Input, Request, Trial
from strobe.bench.suites.workers import pipelines
from strobe.bench.suites.workers import suite as workers
from strobe.bench.suites.workers.pipelines import Draining, deliver
from strobe.bench.suites.workers.suite import COLUMNS, STAGES
from strobe.errors import DataError
from support.composing import bench_config
from support.photo_files import photograph, reference
from support.processes import wait_for
from support.refusals import refusal
from support.suite_parts import declared
from support.suite_records import record_of

SIZE, BATCH = 32, 4
SHAPES = [(60, 80), (60, 70), (150, 130)]  # the last one can be halved while it is decoded
EXACT = {"torch", "packed", "strobe loader.dct_scaling=false"}
NEAR = {"torch_tuned": 2.0, "spdl": 8.0, "spdl_batches": 8.0, "strobe": 2.0, "strobe engine=torch": 2.0}  # levels, mean


@pytest.fixture
def few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.measure.environment.usable_cores", lambda: 8)
    monkeypatch.setattr(workers, "_has_gpu", lambda: False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """Three photos, as the suite finds them."""
    folder = tmp_path_factory.mktemp("photos")
    for number, (height, width) in enumerate(SHAPES):
        photograph(height, width, number).save(folder / f"{number}.jpg", quality=90, subsampling=2)
    given = (f"data.root={folder}", f"data.batch_size={BATCH}", f"data.size={SIZE}")
    return workers._find(
        Request(bench_config("suite=workers", *given), "image_folder", given), tmp_path_factory.mktemp("scratch")
    )


def delivered(found: Input, folder: Path, stage: str, pipeline: str, count: int) -> list[Tensor]:
    """The first items of a pipeline with one worker."""
    trial = Trial(folder, 0, (*found.overrides, f"data.size={SIZE}", f"data.batch_size={BATCH}"), found, folder)
    with skipped(), deliver(trial, pipeline=pipeline, stage=stage, workers=1) as work:
        take: Any = work.repeat
        return [take._take().clone() for _ in range(count)]


@contextlib.contextmanager
def skipped() -> Iterator[None]:
    """Skips the test where a library is missing, and forgives an interruption."""
    try:
        yield
    except DataError as error:
        if "install" in str(error):
            pytest.skip(str(error))
        raise
    except KeyboardInterrupt:
        pass


def assert_nothing_runs(before: set[threading.Thread]) -> None:
    """Neither a process nor a thread that was not there before."""
    assert not multiprocessing.active_children()
    assert wait_for(lambda: not set(threading.enumerate()) - before, 60)


def test_the_full_mode_has_all_stages_columns_and_workers(few_cores: None) -> None:
    suite = declared("workers")
    assert [table.name for table in suite.tables] == ["resize", "batch", "normalise"]
    assert {table.chart for table in suite.tables} == {"lines"}
    assert len(suite.cells) == 3 * 4 * 8
    assert sorted({cell.at for cell in suite.cells}) == [1, 2, 4, 8]
    for cell in suite.cells:
        source = f"{cell.table}, {cell.row}, DataLoader (source), 1 thread, warm"
        assert (cell.cache, cell.threads) == ("warm", 1)
        assert cell.against == (None if cell.column == COLUMNS["torch"] else source)
    assert "no GPU" in suite.about


def test_the_quick_mode_has_fewer(few_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {(cell.table, cell.at) for cell in declared("workers", "quick=true").cells} == {
        (stage, count) for stage in ("resize", "normalise") for count in (1, 2)
    }
    monkeypatch.setattr(workers, "_has_gpu", lambda: True)
    suite = declared("workers", "quick=true")
    assert {cell.table for cell in suite.cells} == {"resize", "transfer"}
    assert "no GPU" not in suite.about
    assert {cell.table for cell in declared("workers").cells} == set(STAGES)


def test_what_is_asked_for_is_measured(few_cores: None) -> None:
    given = ("suite.workers=[16,3]", "suite.stages=[batch]", 'suite.pipelines=["strobe loader.dct_scaling=false",spdl]')
    suite = declared("workers", *given, "threads=2")
    assert [cell.name for cell in suite.cells] == [
        f"batch, {count}, {column}, 2 threads, warm"
        for count in (16, 3)
        for column in ("Strobe loader.dct_scaling=false", "SPDL (source)")
    ]
    assert {cell.against for cell in suite.cells} == {None}  # the published DataLoader is not among them


@pytest.mark.parametrize("pipeline", sorted({*EXACT, *NEAR}))
def test_all_pipelines_deliver_the_same_and_leave_nothing_behind(
    found: Input, tmp_path: Path, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    links = sorted(Path(found.facts["root"], "train").rglob("*.jpg"))
    assert len(links) == workers.LEAST_BATCHES * BATCH  # every photo in whole batches
    assert len({link.resolve() for link in links}) == len(SHAPES)
    expected = []
    for link, number in zip(links, range(2 * BATCH), strict=False):
        height, width = SHAPES[int(link.resolve().stem)]
        assert link.name == f"{2 * number:07}.jpg"  # of the first class, which has every other one
        expected.append(torch.from_numpy(reference(str(link), (0, 0, height, width), SIZE).copy()))
    whole = torch.stack(expected)

    def differ(items: list[Tensor]) -> float:
        return float((torch.cat(items).float() - whole).abs().mean())

    most = 0.0 if pipeline in EXACT else NEAR[pipeline]
    single = [item.view(1, 3, SIZE, SIZE) for item in delivered(found, tmp_path, "resize", pipeline, 2 * BATCH)]
    batches = delivered(found, tmp_path, "batch", pipeline, 2)
    assert {(item.shape, item.dtype) for item in batches} == {((BATCH, 3, SIZE, SIZE), torch.uint8)}
    assert {item.dtype for item in single} == {torch.uint8}
    assert differ(single) <= most
    assert torch.equal(torch.cat(single), torch.cat(batches))
    trial = Trial(tmp_path, 0, (*found.overrides, f"data.size={SIZE}", f"data.batch_size={BATCH}"), found, tmp_path)
    with skipped(), deliver(trial, pipeline=pipeline, stage="normalise", workers=1) as work:
        take: Any = work.repeat
        standardised = take._take().clone()
        assert work.warm_up is not None
        work.warm_up()
        done = work.repeat()
        assert len(multiprocessing.active_children()) == ("torch" in pipeline)
        assert isinstance(done, Done)
        assert done.images == BATCH
        assert done.seconds
        assert len(work.files) == workers.LEAST_BATCHES * BATCH
        raise KeyboardInterrupt
    assert standardised.dtype == torch.float32
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    by_hand = (batches[0].float() / 255 - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
    torch.testing.assert_close(standardised, by_hand, atol=1e-5, rtol=1e-5)
    if not torch.cuda.is_available():  # then the way there is taken, to where the photos are
        monkeypatch.setattr(pipelines, "GPU", "cpu")
    (item,) = delivered(found, tmp_path, "transfer", pipeline, 1)
    assert item.is_cuda == torch.cuda.is_available()
    torch.testing.assert_close(item.cpu(), standardised, atol=1e-5, rtol=1e-5)
    assert_nothing_runs(before)


def test_a_damaged_photo_is_an_error_before_and_while_it_is_measured(tmp_path: Path) -> None:
    photo = tmp_path / "photos" / "bad.jpg"
    photo.parent.mkdir()
    for path in (photo, photo.with_name("good.jpg")):
        photograph(60, 80).save(path)
    given = (f"data.root={photo.parent}", f"data.batch_size={BATCH}", f"data.size={SIZE}")
    asked = Request(bench_config("suite=workers", *given), "image_folder", given)
    damaged = workers._find(asked, tmp_path)
    photo.write_bytes(b"no photo")
    assert "bad.jpg cannot be read as a photo" in refusal(lambda: workers._find(asked, tmp_path / "again"))
    for pipeline in COLUMNS:
        with pytest.raises(Exception, match=r"(?i)bad|fail|identify|cannot be read"):
            delivered(damaged, tmp_path, "batch", pipeline, 20)
        assert not multiprocessing.active_children()


def test_a_repetition_tells_the_time_of_one_item() -> None:
    now = iter([0.0, 0.03, 0.06])
    taken: list[int] = []
    drain = Draining(lambda: (taken.append(0), torch.zeros(4, 3, 2, 2))[1], 2, 3, lambda: next(now))
    assert drain() == Done(4, 0.06 / 4)  # two turns of two items
    assert len(taken) == 3 + 4  # what lay ready is not timed


@pytest.mark.parametrize(("given", "threads"), [((), 5), (("threads=2",), 1)])
def test_published_pipelines_compute_on_all_cores_unless_told(
    found: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], threads: int
) -> None:
    monkeypatch.setattr("strobe.measure.environment.usable_cores", lambda: 5)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    cells = {
        cell.column: cell for cell in declared("workers", "suite.workers=[1]", "suite.stages=[batch]", *given).cells
    }
    trial = Trial(tmp_path, 0, (*found.overrides, f"data.size={SIZE}", f"data.batch_size={BATCH}"), found, tmp_path)
    try:
        for column, expected in ((COLUMNS["torch"], threads), (COLUMNS["torch_tuned"], 1)):
            with cells[column].make(trial):
                assert torch.get_num_threads() == expected
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def concluded(*rates: dict[str, float | str]) -> list[str]:
    """Of a full run in which the stage ``batch`` has these images/s, by the number of workers."""
    suite = declared("workers", "suite.stages=[batch]", "suite.workers=[1,2]")
    found = {cell.name: rates[int(cell.row) - 1].get(cell.column) for cell in suite.cells}
    return workers.conclude(record_of(suite, {name: rate for name, rate in found.items() if rate is not None}))


def test_the_best_of_ours_is_held_against_the_others(few_cores: None) -> None:
    two: dict[str, float | str] = {"DataLoader (source)": 200, "SPDL (source)": 500, "DataLoader (tuned)": 400}
    two |= {"Strobe": 700, "Strobe engine=torch": 600, "Strobe loader.dct_scaling=false": 550, "Strobe, packed": 90_000}
    two["SPDL (whole batches)"] = "SPDL is not installed"
    published = {"DataLoader (source)": 100.0, "SPDL (source)": 300.0, "Strobe": 390.0}
    best, tuned, in_full = concluded({**published}, two)
    assert best.startswith("Decode, resize, batch: Strobe with 2 workers delivers ")
    assert re.search(
        r" images/s, 3\.\d+ \([^)]+\) times DataLoader \(source\), 1\.\d+ \([^)]+\) times SPDL \(source\)\.", best
    )
    assert re.search(r" images/s, 1\.\d+ \([^)]+\) times DataLoader \(tuned\)\.", tuned)
    assert "in full: Strobe loader.dct_scaling=false with 2 workers delivers " in in_full
    assert not any("packed" in each or "SPDL (whole batches)" in each for each in (best, tuned, in_full))


def test_without_ours_nothing_is_concluded(few_cores: None) -> None:
    failed: dict[str, float | str] = {"Strobe": "no compiler"}
    assert concluded({**failed, "SPDL (source)": "no compiler"}, failed) == []
    assert concluded(failed, {**failed, "DataLoader (source)": 100.0}) == []  # one number of workers has no peak
