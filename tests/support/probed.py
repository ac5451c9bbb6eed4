"""Scripts that are probed in processes forked from one that has imported torch and Lightning."""

import hashlib
import json
import os
import runpy
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from strobe.probe.asked import ASKED, SIDES, Asked
from strobe.probe.script import why_not
from strobe.process.fork import Failure, FreshProcess, print_into

SECONDS, PATIENCE = 0.4, 120.0
STEPS = """
import time, torch
from lightning.pytorch import LightningModule, Trainer

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.asked = 0
    def training_step(self, batch):
        time.sleep(0.01)
        if SHORT and len(batch) == 3 and self.trainer.fit_loop.max_batches > 1000: raise RuntimeError("no such batch")
        return self.layer(batch).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

class Batches:
    def __init__(self, batches): self.batches = batches
    def __iter__(self): return iter(self.batches)

batches = torch.utils.data.DataLoader(torch.rand(60, 4), batch_size=3)
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, **SETTINGS)
"""


def probed(
    script: Path, folder: Path, *arguments: str, sides: tuple[str, ...] = SIDES, seconds: float = SECONDS
) -> tuple[str | None, dict[str, Any]]:
    """Why nothing was measured, None where something was; and the record, {} where there is none."""
    folder.mkdir(parents=True)
    scratch = folder / "scratch"
    scratch.mkdir()
    asked = Asked((str(script), *arguments), str(folder), str(scratch), seconds, sides)
    words = str(scratch), asdict(asked), {}, str(folder / "output.txt")
    with FreshProcess(become, *words, preload=["torch", "lightning.pytorch"]) as process:
        while isinstance(said := process.receive(PATIENCE), tuple):
            pass
    path = folder / "summary.json"
    record = json.loads(path.read_text()) if path.is_file() else {}
    return (why_not(said, folder) if isinstance(said, Failure) else said["reason"]), record


def become(pipe: Connection, folder: str, asked: dict[str, Any], variables: dict[str, str], output: str) -> None:
    """In the place of ``strobe.probe.script._become``: the script runs in this process."""
    os.chdir(folder)
    print_into(Path(output))
    os.environ |= variables | {ASKED: json.dumps(asked | {"pipe": pipe.fileno(), "process": os.getpid()})}
    torch.set_num_threads(1)  # as in other tests
    sys.argv = list(asked["command"])
    runpy.run_path(sys.argv[0], run_name="__main__")


def hashes(folder: Path) -> dict[str, str]:
    """What each file of a folder holds."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def script(folder: Path, text: str, fit: str = "trainer.fit(Net(), batches)", **settings: Any) -> Path:
    """A script of ``STEPS``, which ends with ``fit``."""
    path = folder / "train.py"
    text = text.replace("**SETTINGS", f"**{settings!r}").replace("SHORT", "False")
    path.write_text(f"{text}\n{fit}\n")
    return path
