"""The campaign of faults sees what is lost, hung, left behind, and said wrongly."""

import re
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from random import Random

import pytest
import torch

from strobe.validation.soak import Soak
from strobe.validation.soak_bench import Bench, Command, Tried, judge
from strobe.validation.soak_faults import FAULTS, holding
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "full disk", "checkpoint with code", "damaged records"])
def test_a_real_training_survives(tmp_path: Path, name: str) -> None:
    tried = FAULTS[name](Bench(tmp_path), tmp_path / "try", Random(1))
    assert tried.untried or (tried.tries and not tried.failed), tried
