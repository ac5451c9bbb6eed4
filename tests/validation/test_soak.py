"""The campaign of faults sees what is lost, hung, left behind, and said wrongly."""

import os
import re
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from strobe.validation.soak import Soak
from strobe.validation.soak_bench import STAGES, Bench, Command, Tried, judge
from strobe.validation.soak_faults import FAULTS, ended_by, hears, holding
from strobe.validation.soak_images import LOADERS, damaged, images, read

LEAVES = "import subprocess; subprocess.Popen(['sleep', '60'])"


@pytest.mark.parametrize(
    ("program", "way"),
    [
        ("pass", None),
        ("import time; time.sleep(60)", "hung"),
        (LEAVES, "left"),
        ("import sys; sys.exit(3)", "wrong ending"),
        ("print(undefined)", "wrong ending"),
        ("import sys; sys.exit('The DISK is full')", None),
        ("import sys; sys.exit('It did not work')", "wrong ending"),
        ("import os; os.kill(os.getpid(), 9)", "wrong ending"),
    ],
)
def test_a_command_that_does_not_end_as_it_should_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, way: str | None
) -> None:
    monkeypatch.setattr("strobe.validation.soak_bench.GRACE", 0.2)
    tried = Tried()
    Command(["-c", program], tmp_path).end(tried, [0, 1], 5.0, "disk")
    assert [found for found, _ in tried.failed] == ([way] if way else [])


def test_a_checkpoint_that_is_damaged_or_gone_is_lost_and_so_is_a_record(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.save({"state_dict": {}}, folder / "last.ckpt")
    whole, gone = Tried(), Tried()
    judge(whole, tmp_path, {folder / "last.ckpt"})
    assert whole.failed == []
    (folder / "last.ckpt").write_bytes(b"")
    (tmp_path / "steps.csv").write_text("")
    (tmp_path / "summary.json").write_text("{")
    judge(gone, tmp_path, {folder / "best.ckpt"})
    told = "\n".join(text for _, text in gone.failed)
    assert len(gone.failed) == 3
    assert all(name in told for name in ("last.ckpt is damaged", "best.ckpt is gone", "summary.json"))


def test_damage_is_repeated_by_its_seed_and_is_damage() -> None:
    content = bytes(range(256)) * 8
    made = [damaged(content, Random(number)) for number in range(100)]
    assert made == [damaged(content, Random(number)) for number in range(100)]
    assert sum(one != content for one in made) >= 95
    assert {len(one) == len(content) for one in made} == {True, False}


@pytest.mark.parametrize(("kind", "loader"), [("tiles", "skimage"), ("photos", "pil")])
def test_damaged_images_are_read_or_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, loader: str
) -> None:
    monkeypatch.setattr("strobe.validation.soak_images.print_into", lambda _: None)
    ours, theirs = Pipe()
    read(theirs, (kind, loader), tmp_path / loader, 1, 40)
    assert ours.recv() == (40, [])


def test_an_hour_has_room_for_100000_damaged_images() -> None:
    loaders = sum(len(names) for names in LOADERS.values())
    assert 2 * loaders * images(3600.0) == 100_000
    assert [images(seconds) for seconds in (0.0, 600.0, 1e6)] == [500, 1042, 6250]


def test_what_a_process_holds_is_counted() -> None:
    given = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(given, stdin=-1, stdout=-1, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before it has begun it holds next to nothing
        try:
            held = holding(process.pid)
        finally:
            process.kill()
    assert held["memory"] > 1 << 16
    assert held["threads"] == 1
    assert held["descriptors"] >= 3


def test_each_fault_is_tried_once_however_short_the_time_and_what_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Bench, folder: Path, rolled: Random) -> Tried:
        return Tried(failed=[("lost", f"something in {folder.name}")])

    monkeypatch.setitem(FAULTS, "full disk", fails)
    monkeypatch.setitem(FAULTS, "SIGTERM", lambda *_: Tried(undecided=1))
    monkeypatch.setitem(FAULTS, "read-only folder", lambda *_: Tried(0, untried="not permitted"))
    soak = Soak(Bench(tmp_path), ["SIGTERM", "full disk", "read-only folder"], seed=1)
    soak.run(0.0)
    assert soak.report(1.0) == 1
    said = capsys.readouterr().out
    assert "full disk: lost: something in 1" in said
    rows = [re.findall(r"\w[\w ]*\w|\d", line) for line in said.splitlines()]
    assert "undecided" in said
    assert ["SIGTERM", "1", *["0"] * 5, "1"] in rows
    assert "read-only folder was not tried: not permitted" in said


class Played(Bench):
    """Its trainings are programs: the one called ``folder`` of ``programs``, or the one for all of them."""

    def __init__(self, scratch: Path, **programs: str) -> None:
        super().__init__(scratch)
        self.programs, self.begun = programs, list[str]()

    def train(self, folder: Path, *_: str, run: Path | None = None, **__: Any) -> Command:
        folder.mkdir(parents=True, exist_ok=True)
        self.begun.append(folder.name)
        program = self.programs.get(folder.name) or self.programs["each"]
        return Command(["-c", program, str(run or folder / "run")], folder)


FIRST = """
import pathlib, sys, time
run = pathlib.Path(sys.argv[1])
run.mkdir()
(run / ".lock").touch()
while not (run / "tried").exists():
    time.sleep(0.01)
sys.exit({code} and "another process is writing into it")
"""
SECOND = """
import pathlib, sys
(pathlib.Path(sys.argv[1]) / "tried").touch()  # which is there, as the first one has begun
print("another process is writing into it")
sys.exit({code})
"""


@pytest.mark.parametrize(
    ("first", "second", "ways"), [(0, 2, []), (0, 1, ["wrong ending"]), (1, 2, ["wrong ending", "lost"])]
)
def test_a_second_run_in_a_folder_may_be_refused_but_not_both(
    tmp_path: Path, first: int, second: int, ways: list[str]
) -> None:
    bench = Played(tmp_path, each="pass", first=FIRST.format(code=first), second=SECOND.format(code=second))
    tried = FAULTS["two runs in one folder"](bench, tmp_path / "try", Random(1))
    assert [way for way, _ in tried.failed] == ways, tried


def test_how_long_stages_take_is_measured_of_a_second_run(tmp_path: Path) -> None:
    bench = Played(tmp_path, each="pass")
    assert bench.stages().keys() == STAGES.keys()
    assert bench.usual() == sum(bench.stages().values())
    assert bench.begun == ["finished-first", "finished"]


def test_each_fault_goes_through_all_places_in_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    turns = [(bench.turn("a", "xyz"), bench.turn("b", "xyz")) for _ in range(3)]
    assert {a for a, _ in turns} == {b for _, b in turns} == set("xyz")
    assert all(a != b for a, b in turns)


BEGUN = f"""
import pathlib, sys, time
for place in {[*STAGES.values()][1:]}:
    path = pathlib.Path(sys.argv[1]).parent / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_may_end_a_run_by_itself_only_before_that_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr("strobe.validation.soak_faults.judge", lambda *_: None)
    monkeypatch.setattr(Bench, "stages", lambda *_: dict.fromkeys(STAGES, 0.0))
    bench, fault, found = Played(tmp_path, each=BEGUN), ended_by(number), dict[str, list[str]]()
    for place in range(len(STAGES)):
        tried = fault(bench, tmp_path / str(place), Random(1))
        assert tried.tries == 1
        found[tried.where] = [way for way, _ in tried.failed]
    assert [*found] == [*STAGES]
    assert [*found.values()] == [[]] * 3 + [["wrong ending"]] * (len(STAGES) - 3)


def test_whether_a_process_hears_a_signal_is_asked_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    try:
        assert not hears(os.getpid(), signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, lambda *_: None)
        assert hears(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not hears(1 << 30, signal.SIGUSR2)


@pytest.mark.parametrize(
    ("levels", "undecided", "ways"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0, []),
        ([1.0, 1.04, 1.08, 1.12, 1.16, 1.2], 0, ["grew"]),
        ([1.0, 1.01, 1.0, 1.01, 1.0, 1.02], 1, []),  # which could be 5% in either direction
    ],
)
def test_what_a_long_training_holds_has_grown_or_has_not_or_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: list[float], undecided: int, ways: list[str]
) -> None:
    counts = [*[1.0] * 7, *(level for level in levels for _ in range(2)), *[1.0] * 3]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "steps.csv").write_text("\n" * 20_001)
    held = iter(counts)
    process = SimpleNamespace(pid=0, poll=iter([*[None] * len(counts), 0]).__next__)
    monkeypatch.setattr(Bench, "train", lambda *_, **__: SimpleNamespace(process=process, end=lambda *_: None))
    monkeypatch.setattr(Bench, "tiny_tiles", lambda _: tmp_path)
    monkeypatch.setattr("strobe.validation.soak_faults.holding", lambda _: {"memory": round(1e9 * next(held))})
    monkeypatch.setattr("strobe.validation.soak_faults.time.sleep", lambda _: None)
    tried = FAULTS["long training, no workers"](Bench(tmp_path), tmp_path, Random(1))
    assert (tried.undecided, [way for way, _ in tried.failed]) == (undecided, ways), tried


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["SIGTERM", "SIGUSR1", "full disk", "two runs in one folder", "checkpoint with code", "damaged records"]
)
def test_a_real_training_survives(tmp_path: Path, name: str) -> None:
    tried = FAULTS[name](Bench(tmp_path), tmp_path / "try", Random(1))
    assert tried.untried or (tried.tries and not tried.failed), tried
