"""What :mod:`strobe.validation.soak` tries faults on: trainings of the application, and how they should end."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import tifffile
import torch

from strobe.app.run.apart import ROOT
from strobe.errors import DataError
from strobe.process.fork import end_session, last_said, members
from strobe.records.joining import is_whole, recover
from strobe.records.places import OUTPUT
from strobe.records.run import load_record

WAYS = ("lost", "hung", "left", "wrong ending", "grew")
PATIENCE = 30.0  # seconds to end after a request, and for any other command beyond what it usually takes
GRACE = 5.0  # seconds, in which what a process started may end after it
STAGES = {  # of a training, and the file in its folder by which each has begun
    "start": "",
    "imports": "run/.lock",
    "first steps": "run/begun.json",
    "training": "run/checkpoints/last.ckpt",
    "second epoch and test": "run/checkpoints/best.ckpt",
    "ceilings": "run/summary.json",
    "report": "run/traces.html",
    "exit": "run/report.html",
}
TINY_SIDE = 8  # pixels of a tile of long trainings
TINY = (
    "trainer.accelerator=cpu",
    "trainer.max_epochs=2",
    "trainer.limit_train_batches=20",
    "trainer.limit_val_batches=2",
    "trainer.limit_test_batches=2",
    "trainer.enable_progress_bar=false",
    "data.batch_size=4",
    "checkpoint.save=resume",
    "checkpoint.every_n_steps=5",
    "ceilings=true",
    "ceilings_seconds=0.2",
    "model._target_=strobe.validation.injected_faults.SmallClassifier",
)


@dataclass
class Tried:
    """What came of ``tries``: what failed, in which way, in a sentence; ``notes``; or why it is ``untried``.

    ``undecided`` of the tries were too short or too uneven to tell. ``where``: at which of the fault's places it was.
    """

    tries: int = 1
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    untried: str = ""
    undecided: int = 0
    where: str = ""

    def fail(self, way: str, sentence: str) -> None:
        """Note a failure in one of ``WAYS``."""
        self.failed.append((way, sentence))


class Command:
    """A command of this tree in a session of its own."""

    def __init__(self, words: Sequence[str], folder: Path, *, before: Sequence[str] = (), **variables: str) -> None:
        self.output, self.words = folder / OUTPUT, words
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                ["env", "--default-signal=INT,HUP,TERM", *before, sys.executable, *words],  # none of them ignored
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def reaches(self, path: Path, patience: float) -> bool:
        """Wait until a file is there; False if the command ends before, or takes longer."""
        deadline = time.monotonic() + patience
        while self.process.poll() is None and time.monotonic() < deadline:
            if path.exists():
                return True
            time.sleep(0.01)
        return False

    def end(self, tried: Tried, codes: Iterable[int], patience: float, why: str = "") -> None:
        """Wait for its end, and note what is not as it should be: only these exit codes are right.

        With another code than 0 it must say ``why``, a regular expression.
        """
        command = f"{' '.join(self.words)} ({self.output})"
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            tried.fail("hung", f"{command} went on for {patience:.0f} s")
            end_session(self.process.pid)
            self.process.wait()
            return
        deadline = time.monotonic() + GRACE
        while (left := members(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            tried.fail("left", f"{command} left {len(left)} processes")
            end_session(self.process.pid)
        output = self.output.read_text(errors="replace")
        if "Traceback" in output or code not in set(codes) or (code and not re.search(why, output, re.IGNORECASE)):
            tried.fail("wrong ending", f"{command} ended with {code}: {last_said(self.output)}")


class Bench:
    """What faults are tried on, all of it in ``scratch``: a data set, a finished run, and how long runs take.

    ``seconds``: that the campaign takes; ``faults``: how many it tries.
    """

    def __init__(self, scratch: Path, *, seconds: float = 0.0, faults: int = 1) -> None:
        self.scratch, self.seconds, self.faults = scratch, seconds, faults
        self.data = scratch / "data"
        self.finished = scratch / "finished"
        self._stages: dict[tuple[str, ...], dict[str, float]] = {}
        self._turns: Counter[tuple[str, str]] = Counter()

    def turn(self, fault: str, places: Iterable[str]) -> str:
        """The place whose turn it is: this fault was tried there least, and so were others."""
        place = min(places, key=lambda one: (self._turns[fault, one], self._turns["", one]))
        self._turns.update([(fault, place), ("", place)])
        return place

    def train(
        self,
        folder: Path,
        *overrides: str,
        run: Path | None = None,
        data: Sequence[str] = (),
        before: Sequence[str] = (),
        **variables: str,
    ) -> Command:
        """Begin a training that writes into ``folder/run``, or ``run``; what it says goes into ``folder``.

        It trains on a generated data set, or on that of the overrides ``data``.
        """
        generated = ("data=sample", "data.tiles_per_class=12", f"data.root={self.data}")
        keys = [*TINY, *(data or generated), *overrides]
        folder.mkdir(parents=True, exist_ok=True)
        words = ["train.py", *keys, f"hydra.run.dir={run or folder / 'run'}"]
        return Command(words, folder, before=before, **variables)

    def tiny_tiles(self) -> Path:
        """A folder of class folders with tiles so small that a step hardly computes."""
        folder = self.scratch / "tiny"
        if not folder.exists():
            self.usual()
            for path in self.data.rglob("*.tif"):
                (place := folder / path.parent.name).mkdir(parents=True, exist_ok=True)
                pixels = tifffile.imread(path)[:TINY_SIDE, :TINY_SIDE]
                tifffile.imwrite(place / path.name, pixels, photometric="minisblack", planarconfig="contig")
        return folder

    def usual(self, *overrides: str) -> float:
        """Seconds that such a training takes undisturbed."""
        return sum(self.stages(*overrides).values())

    def stages(self, *overrides: str) -> dict[str, float]:
        """Seconds of each of its ``STAGES`` in a second run: the first one reads libraries from the disk."""
        if overrides not in self._stages:
            folder = self.finished if not overrides else self.scratch / f"usual{len(self._stages)}"
            self._undisturbed(folder.with_name(f"{folder.name}-first"), overrides)
            self._stages[overrides] = self._undisturbed(folder, overrides)
        return self._stages[overrides]

    def _undisturbed(self, folder: Path, overrides: Sequence[str]) -> dict[str, float]:
        tried, command, moments = Tried(), self.train(folder, *overrides), []
        for file in STAGES.values():
            command.reaches(folder / file, 10 * PATIENCE)
            moments.append(time.monotonic())
        command.end(tried, [0], 10 * PATIENCE)
        if tried.failed:
            raise SystemExit(f"Nothing can be tried where an undisturbed training fails: {tried.failed[0][1]}")
        ends = pairwise([*moments, time.monotonic()])
        return {stage: end - begin for stage, (begin, end) in zip(STAGES, ends, strict=True)}


def loadable(run: Path) -> set[Path]:
    """The checkpoints of a run that are whole."""
    whole = set()
    for path in run.glob("checkpoints/*.ckpt"):
        with contextlib.suppress(Exception):
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            whole.add(path)
    return whole


def judge(tried: Tried, run: Path, stood: set[Path]) -> None:
    """Note what a run has lost: its record, or checkpoints that stood before."""
    now = loadable(run)
    there = set(run.glob("checkpoints/*.ckpt"))
    for path in (stood | there) - now:
        tried.fail("lost", f"{path} {'is damaged' if path.exists() else 'is gone'}")
    if not (run / "steps.csv").is_file():
        return
    try:
        _ = load_record(run) if is_whole(run) else recover(run)
    except DataError as error:
        tried.fail("lost", f"the record of {run}: {error}")
