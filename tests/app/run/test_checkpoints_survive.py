"""What ends a process, or fills its disk, while a checkpoint is written takes neither the one before nor the record."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from lightning.pytorch import Trainer

from strobe.app.build.checkpoint import Held, Whole, write_whole
from strobe.records.joining import is_whole
from strobe.validation.soak_faults import own_shared_memory
from support.interruptions import before_each_step, fill, small_disk
from support.places import ROOT
from support.processes import begin, wait_for
from support.runs import CHECKPOINTS, QUICK, trained

WRITER = """
import sys, torch
from strobe.app.build.checkpoint import Whole
number = 0
while True:
    number += 1
    Whole().save_checkpoint({"number": number, "weights": torch.full((1 << 24,), number)}, sys.argv[1])
"""

SEMAPHORES = """
import sys
from multiprocessing import Lock
from pathlib import Path
from omegaconf import OmegaConf
from strobe.app.run.train import explained
held = []
try:
    while True:
        held.append(Lock())
except OSError as error:
    print(explained(error, Path(sys.argv[1]), OmegaConf.create({"checkpoint": {"save": "none"}})))
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_process_that_is_killed_while_it_writes_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path, scratch = tmp_path / "run" / "last.ckpt", tmp_path / "scratch"
    scratch.mkdir()
    process = begin("-c", WRITER, str(path), PYTHONPATH=str(ROOT / "src"), TMPDIR=str(scratch))

    def is_writing() -> bool:
        os.kill(process.pid, signal.SIGSTOP)
        if path.is_file() and any(left.stat().st_size for left in path.parent.glob("*.partial")):
            return True
        os.kill(process.pid, signal.SIGCONT)
        return process.poll() is not None

    wait_for(is_writing)
    process.kill()
    said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    kept = torch.load(path)
    assert torch.equal(kept["weights"], torch.full_like(kept["weights"], kept["number"]))
    assert len(names(path.parent)) == 2
    assert names(scratch) == []
    Whole().save_checkpoint({}, path)  # as the run does that goes on there
    assert names(path.parent) == ["last.ckpt"]


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        path = disk / "new" / "last.ckpt"
        Whole().save_checkpoint({"number": 1}, path)
        for size in (1 << 20, 1 << 16, 1 << 10):
            with pytest.raises(OSError, match="No space left") as full:
                Whole().save_checkpoint({"number": 2, "weights": torch.zeros(size)}, path)
            assert full.value.errno == errno.ENOSPC
            fill(disk)
        assert torch.load(path) == {"number": 1}
        assert names(disk) == ["filler", "last.ckpt"]


def test_a_disk_that_fills_leaves_a_record_that_says_so(
    tmp_path: Path, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = "+callbacks.mine._target_=lightning.pytorch.callbacks.ModelCheckpoint"
    with small_disk(tmp_path / "disk", 16) as disk:
        before_each_step(monkeypatch, lambda model, _: model.global_step == 2 and fill(disk))
        given = (CHECKPOINTS, "checkpoint.save=none", mine, "+callbacks.mine.every_n_train_steps=1")
        ended = trained(disk / "run", *given, defaults=QUICK, data_root=sample_root)
        assert ended.code == 1
        assert "Traceback" not in ended.output
        assert ended.output.splitlines()[-1].startswith(f"The disk is full: hydra.run.dir={disk}")
        assert (ended.summary["status"], ended.summary["error"]["type"]) == ("failed", "DataError")
        assert ended.summary["error"]["message"] in ended.output
        assert is_whole(ended.directory)
        assert not (ended.directory / ".room").exists()
        (kept,) = ended.directory.rglob("*.ckpt")
        assert torch.load(kept, weights_only=True)["global_step"] == 2
        assert not list(disk.rglob("*.partial"))


@pytest.mark.skipif(os.geteuid() != 0, reason="intended: only root can mount another /dev/shm")
def test_shared_memory_without_room_for_a_semaphore_is_no_full_disk(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*own_shared_memory("16k"), sys.executable, "-c", SEMAPHORES, str(tmp_path)],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert "/dev/shm, with 0 MB free, was full" in ended.stdout


def test_a_url_is_left_to_lightning() -> None:
    Whole().save_checkpoint({"number": 1}, "memory://checkpoints/last.ckpt")
    assert Whole().load_checkpoint("memory://checkpoints/last.ckpt") == {"number": 1}
    fsspec.filesystem("memory").rm("/checkpoints", recursive=True)


@pytest.mark.parametrize(
    ("settings", "hold", "kind"),
    [
        ({"devices": 1}, True, Held),
        ({"devices": 1}, False, Whole),
        ({"devices": 2, "strategy": "ddp"}, True, Whole),  # only one saves, but all load
    ],
)
def test_all_trainers_write_whole_files(settings: dict[str, Any], hold: bool, kind: type, tmp_path: Path) -> None:
    trainer = Trainer(accelerator="cpu", logger=False, **settings)
    write_whole(trainer, hold=tmp_path if hold else None)
    assert type(trainer.strategy.checkpoint_io) is kind
