"""The faults of :mod:`strobe.validation.soak`, each tried on real processes of the application."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch

from strobe.app.run.apart import ROOT
from strobe.errors import DataError
from strobe.process.fork import Failure, end_session, in_fresh_process, last_said, members
from strobe.records.joining import is_whole, recover
from strobe.records.run import load_record
from strobe.validation import soak_images

WAYS = ("lost", "hung", "left", "wrong word")
PATIENCE = 30.0  # seconds to end after a request, and for any other command beyond what it usually takes
GRACE = 5.0  # seconds, in which what a process started may end after it
OUTPUT = "output.txt"
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
RANKS = ("trainer=ddp", "trainer.devices=2", "ceilings=false")
REQUESTS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@dataclass
class Tried:
    """What came of ``tries``: what failed, in which way, in a sentence; or why nothing was ``untried``."""

    tries: int = 1
    failed: list[tuple[str, str]] = field(default_factory=list)
    untried: str = ""

    def fail(self, way: str, told: str) -> None:
        """Note a failure in one of ``WAYS``."""
        self.failed.append((way, told))


class Command:
    """A command of this tree in a session of its own."""

    def __init__(self, words: Sequence[str], folder: Path, *, before: Sequence[str] = (), **variables: str) -> None:
        self.output, self.words = folder / OUTPUT, words
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [*before, sys.executable, *words],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, tried: Tried, codes: Iterable[int], patience: float) -> None:
        """Wait for its end, and note what is not as it should be: only these exit codes are right."""
        told = f"{' '.join(self.words)} ({self.output})"
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            tried.fail("hung", f"{told} went on for {patience:.0f} s")
            end_session(self.process.pid)
            self.process.wait()
            return
        deadline = time.monotonic() + GRACE
        while (left := members(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            tried.fail("left", f"{told} left {len(left)} processes")
            end_session(self.process.pid)
        said = self.output.read_text(errors="replace")
        if "Traceback" in said or code not in set(codes):
            tried.fail("wrong word", f"{told} ended with {code}: {last_said(self.output)}")


class Bench:
    """What faults are tried on: a data set, a finished run, and how long runs take.

    Args:
        scratch: the folder for everything.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.data = scratch / "data"
        self.finished = scratch / "finished"
        self._usual: dict[tuple[str, ...], float] = {}

    def train(
        self, folder: Path, *overrides: str, run: Path | None = None, before: Sequence[str] = (), **variables: str
    ) -> Command:
        """Begin a training that writes into ``folder/run``, or ``run``; what it says goes into ``folder``."""
        given = [*TINY, "data.tiles_per_class=12", f"data.root={self.data}", *overrides]
        folder.mkdir(parents=True, exist_ok=True)
        words = ["train.py", *given, f"hydra.run.dir={run or folder / 'run'}"]
        return Command(words, folder, before=before, **variables)

    def usual(self, *overrides: str) -> float:
        """Seconds that such a training takes undisturbed."""
        if overrides not in self._usual:
            folder = self.finished if not overrides else self.scratch / f"usual{len(self._usual)}"
            tried, began = Tried(), time.monotonic()
            self.train(folder, *overrides).end(tried, [0], 10 * PATIENCE)
            if tried.failed:
                raise SystemExit(f"Nothing can be tried where an undisturbed training fails: {tried.failed[0][1]}")
            self._usual[overrides] = time.monotonic() - began
        return self._usual[overrides]


Fault = Callable[[Bench, Path, Random], Tried]


def ended_by(number: signal.Signals, *overrides: str) -> Fault:
    """A signal at a random moment: to one rank, or as a terminal and a scheduler do, to all processes."""

    def fault(bench: Bench, folder: Path, rolled: Random) -> Tried:
        tried, usual = Tried(), bench.usual(*overrides)
        command = bench.train(folder, *overrides)
        time.sleep(rolled.uniform(0, usual))
        stood = loadable(folder / "run")
        pids = [pid for pid in members(command.process.pid) if pid == command.process.pid or "train.py" in _words(pid)]
        with contextlib.suppress(ProcessLookupError):
            if number != signal.SIGKILL and rolled.random() < 0.5:
                os.killpg(command.process.pid, number)
            else:
                os.kill(rolled.choice(pids or [command.process.pid]), number)
        codes = [0, REQUESTS[number]] if number in REQUESTS else [0, -number, 1, 143]
        command.end(tried, codes, PATIENCE if number in REQUESTS else usual + PATIENCE)
        judge(tried, folder / "run", stood)
        return tried

    return fault


def full_disk(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A disk that is full after a random part of what a run writes."""
    bench.usual()
    written = sum(path.stat().st_size for path in bench.finished.rglob("*") if path.is_file())
    tried = Tried()
    with mounted(folder / "disk", f"size={int(rolled.uniform(0.05, 1.5) * written)}", tried) as disk:
        if disk:
            bench.train(folder, run=disk / "run").end(tried, [0, 1], bench.usual() + PATIENCE)
            judge(tried, disk / "run", set())
    return tried


def read_only(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A folder for runs, or for temporary files, that nobody may write to."""
    tried = Tried()
    with mounted(folder / "disk", "ro", tried) as disk:
        if disk and rolled.random() < 0.5:
            bench.train(folder, run=disk / "run").end(tried, [1], PATIENCE)
        elif disk:
            bench.train(folder, TMPDIR=str(disk)).end(tried, [0, 1], bench.usual() + PATIENCE)
            judge(tried, folder / "run", set())
    return tried


def tiny_shared_memory(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A /dev/shm that holds no batch, as in a container, with loader processes."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return Tried(0, untried="only root can mount another /dev/shm")
    size = rolled.choice(["16k", "64k", "256k"])
    before = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"', "sh"]
    return _limited(bench, folder, before, "engine.num_workers=2")


def few_files(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """64 open files at most."""
    return _limited(bench, folder, ["prlimit", "--nofile=64"], f"engine.num_workers={rolled.choice([0, 2])}")


def little_memory(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """Less address space than a training takes, or just enough."""
    return _limited(bench, folder, ["prlimit", f"--as={int(rolled.uniform(4, 12) * 1e9)}"])


def two_in_one_folder(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """Two trainings that write into the same folder; one of them may be refused."""
    tried, usual = Tried(), bench.usual()
    commands = []
    for name in ("first", "second"):
        commands.append(bench.train(folder / name, run=folder / "run"))
        time.sleep(rolled.uniform(0, usual / 2))
    for command in commands:
        command.end(tried, [0, 1], 3 * usual + PATIENCE)
    judge(tried, folder / "run", set())
    return tried


def first_builds(_: Bench, folder: Path, __: Random) -> Tried:
    """Eight processes at once that compile the operators for the first time."""
    if all(shutil.which(name) is None for name in ("g++", "c++", "clang++")):
        return Tried(0, untried="there is no compiler")
    tried, commands = Tried(), []
    for number in range(8):
        (own := folder / str(number)).mkdir()
        commands.append(Command(["-m", "strobe.native"], own, XDG_CACHE_HOME=str(folder / "cache")))
    for command in commands:
        command.end(tried, [0], 20 * PATIENCE)
    return tried


def mutated(kind: str) -> Fault:
    """Damaged images through each loader: pixels or one sentence, within a time."""

    def fault(_: Bench, folder: Path, rolled: Random) -> Tried:
        tried = Tried(0)
        for loader in soak_images.LOADERS[kind]:
            given = kind, loader, folder / loader, rolled.randrange(1 << 30)
            found = in_fresh_process(soak_images.read, *given, timeout=4 * PATIENCE)
            if isinstance(found, Failure):
                tried.tries += 1
                tried.fail("hung" if "took more than" in found.reason else "wrong word", f"{loader}: {found.reason}")
            else:
                count, words = found
                tried.tries += count
                tried.failed += [("wrong word", f"{loader}: {told}") for told in words]
        return tried

    return fault


def checkpoint_with_code(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A checkpoint that would run code when it is loaded."""
    tried, mark, path = Tried(), folder / "ran", folder / "evil.ckpt"
    torch.save({"state_dict": {}, "more": _Runs(mark)}, path)
    key, network = rolled.choice(["ckpt_path", "model.weights"]), "strobe.app.model.classifier.ImageClassifier"
    bench.train(folder, f"{key}={path}", f"model._target_={network}").end(tried, [1, 2], bench.usual() + PATIENCE)
    if mark.exists():
        tried.fail("lost", f"{key}={path} ran its code")
    return tried


def damaged_record(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A file of a finished run that is cut, or has other bytes, and the commands that read it."""
    bench.usual()
    tried, run = Tried(0), folder / "run"
    for command in ("report", "compare", "view", "clean"):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(bench.finished / "run", run)
        files = [path for path in run.rglob("*") if path.is_file() and path.suffix in (".json", ".csv", ".yaml")]
        path = rolled.choice(sorted(files))
        path.write_bytes(soak_images.damaged(path.read_bytes(), rolled))
        words = {"compare": [str(run), str(bench.finished / "run")], "view": [str(run), "--no-open"]}
        own = folder / command
        own.mkdir()
        tried.tries += 1
        Command(["-m", f"strobe.{command}", *words.get(command, [str(run)])], own).end(tried, range(5), 2 * PATIENCE)
    return tried


FAULTS: dict[str, Fault] = {
    **{number.name: ended_by(number) for number in (signal.SIGKILL, *REQUESTS)},
    **{f"{number.name}, two ranks": ended_by(number, *RANKS) for number in (signal.SIGKILL, *REQUESTS)},
    "full disk": full_disk,
    "read-only folder": read_only,
    "tiny /dev/shm": tiny_shared_memory,
    "64 open files": few_files,
    "little memory": little_memory,
    "two runs in one folder": two_in_one_folder,
    "eight first builds": first_builds,
    "damaged tiles": mutated("tiles"),
    "damaged photos": mutated("photos"),
    "checkpoint with code": checkpoint_with_code,
    "damaged records": damaged_record,
}


class _Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = str(mark)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (self._mark, "w")


def _limited(bench: Bench, folder: Path, before: Sequence[str], *overrides: str) -> Tried:
    """A training under a limit: it works, or says why not."""
    tried = Tried()
    command = bench.train(folder, *overrides, before=before)
    command.end(tried, [0, 1], bench.usual() + 2 * PATIENCE)
    judge(tried, folder / "run", set())
    return tried


def loadable(run: Path) -> set[Path]:
    """The checkpoints of a run that are whole."""
    found = set()
    for path in run.glob("checkpoints/*.ckpt"):
        with contextlib.suppress(Exception):
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            found.add(path)
    return found


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


@contextlib.contextmanager
def mounted(folder: Path, options: str, tried: Tried) -> Iterator[Path | None]:
    """A file system of its own in memory; None, and why nothing was tried, if this user may not mount one."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        tried.tries, tried.untried = 0, done.stderr.strip()
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _words(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
