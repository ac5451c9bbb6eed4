"""The faults of :mod:`strobe.validation.soak`, each tried on real processes of the application."""

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch

from strobe.app.config.compose import BARE
from strobe.app.storage.serving import BUCKET, CREDENTIALS, serving, upload
from strobe.callbacks.columns import RANKS_FOLDER
from strobe.errors import DataError
from strobe.measure.statistics import paired
from strobe.process.fork import MEMORY, Failure, in_fresh_process, members, memory_of
from strobe.process.signals import REQUESTS
from strobe.records.files import BEGUN
from strobe.records.joining import is_whole
from strobe.validation import soak_images
from strobe.validation.soak_bench import PATIENCE, STAGES, Bench, Command, Tried, judge, loadable

RANKS = ("trainer=ddp", "trainer.devices=2", "ceilings=false")
_JOB = ("JOB_ID=7", "JOB_NAME=train", "NTASKS=1", "LOCALID=0", "PROCID=0", "NODEID=0")
SLURM = ("env", *(f"SLURM_{one}" for one in _JOB))
BEGINNING = ("start", "imports", "first steps")  # in which a rank may not have begun to listen
PARTS, ROOM = 16, "1g"  # of what a run writes, in turn; and what the disk has before it is full
SHRINKING = 20  # attempts
LONG = 60  # seconds of a long training, at least
LASTING = (
    *("trainer.max_epochs=-1", "trainer.limit_train_batches=null", "trainer.limit_val_batches=0"),
    *("checkpoint.every_n_steps=null", "checkpoint.save=none", "data.batch_size=1", "loader=native", *BARE),
)
MANY = 100_000  # steps, in which what a training holds may grow by ``GROWTH`` of it
GROWTH, BLOCKS = 0.01, 6
UNKNOWN = 0.05  # a width of an interval of growth, from which on it tells nothing
FEWEST = 5_000  # steps, in fewer of which what a training still begins with looks like growth
SLOWEST = 0.1  # seconds of a damaged image, of many on a busy machine
# What a user must be told, by the sentence of this project or of the library that cannot go on.
NO_SPACE = r"The disk is full: |MB free, and a run needs about|No space left on device"
READ_ONLY = r"hydra\.run\.dir=\S+ cannot be (made|written to) \(Read-only file system\)"
NO_TEMPORARY = r"Read-only file system|No usable temporary directory"
NO_SHARED_MEMORY = r"/dev/shm, with [\d,]+ MB free, was full"
NO_FILES = r"files that this process may hold open|Too many open files"
NO_MEMORY = rf"{MEMORY.pattern}|start new thread|thread creation failed|pthread_create failed"
KINDS = {"descriptors": "fd", "threads": "task"}  # in a process's folder of /proc


Fault = Callable[[Bench, Path, Random], Tried]


def ended_by(number: signal.Signals, *overrides: str, before: Sequence[str] = ()) -> Fault:
    """A signal at a random moment of a stage: to one rank, or as a terminal and a scheduler do, to all processes."""

    def fault(bench: Bench, folder: Path, rolled: Random) -> Tried:
        usual, lengths = bench.usual(*overrides), bench.stages(*overrides)
        stage = bench.turn(f"{number.name} {overrides}", STAGES)
        tried = Tried(where=stage)
        command = bench.train(folder, *overrides, before=before)
        heard = codes_of(number)
        if command.reaches(folder / STAGES[stage], usual + PATIENCE):
            time.sleep(rolled.uniform(0, lengths[stage]))
        stood, pids = loadable(folder / "run"), members(command.process.pid)
        pids = [pid for pid in pids if pid == command.process.pid or "train.py" in _words(pid)]
        if command.process.poll() is None and pids:
            pid, to_all = rolled.choice(pids), number != signal.SIGKILL and rolled.random() < 0.5
            if stage in BEGINNING and not all(hears(one, number) for one in (pids if to_all else [pid])):
                heard = {*heard, *codes_of(signal.SIGKILL), -number}  # the signal itself may end it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.process.pid, number) if to_all else os.kill(pid, number)
        else:
            tried.tries = 0  # it had ended before
        command.end(tried, heard, PATIENCE if number in REQUESTS else usual + PATIENCE)
        judge(tried, folder / "run", stood)
        return tried

    return fault


def codes_of(number: signal.Signals) -> set[int]:
    """With which a run may end that gets this signal at any moment."""
    if number == signal.SIGUSR1:  # Lightning saves, and training goes on
        return {0}
    return {0, 128 + number} if number in REQUESTS else {0, 1, 143, -number}


def hears(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, as Linux tells; False if it has ended."""
    with contextlib.suppress(OSError):
        (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return bool(int(caught, 16) >> (number - 1) & 1)
    return False


def full_disk(bench: Bench, folder: Path, _: Random) -> Tried:
    """A disk that is full after each part of what a run writes, in turn; there was room for all when it began."""
    bench.usual()
    written = sum(path.stat().st_size for path in bench.finished.rglob("*") if path.is_file())
    part = bench.turn("full disk", [f"{part} of {PARTS} written" for part in range(1, PARTS + 1)])
    tried = Tried(where=part)
    with mounted(folder / "disk", f"size={ROOM}", tried) as disk:
        if disk:
            command = bench.train(folder, run=disk / "run")
            if command.reaches(disk / "run" / BEGUN, bench.usual() + PATIENCE):
                _shrink(disk, written * int(part.split()[0]) // PARTS)
            command.end(tried, [0, 1], bench.usual() + PATIENCE, NO_SPACE)
            judge(tried, disk / "run", set())
            if not is_whole(disk / "run"):
                tried.fail("lost", f"{command.output}: there is no record")
    return tried


def _shrink(disk: Path, room: int) -> None:
    """Leave so many bytes of a file system, into which others write: what it holds may grow beyond the size."""
    for attempt in range(SHRINKING):
        size = f"remount,size={shutil.disk_usage(disk).used + room}"
        if not subprocess.run(["mount", "-o", size, str(disk)], check=attempt == SHRINKING - 1).returncode:
            return


def read_only(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A folder for runs, or for temporary files, that nobody may write to."""
    tried = Tried()
    with mounted(folder / "disk", "ro", tried) as disk:
        if disk and rolled.random() < 0.5:
            bench.train(folder, run=disk / "run").end(tried, [1], PATIENCE, READ_ONLY)
        elif disk:
            bench.train(folder, TMPDIR=str(disk)).end(tried, [0, 1], bench.usual() + PATIENCE, NO_TEMPORARY)
            judge(tried, folder / "run", set())
    return tried


def tiny_shared_memory(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A /dev/shm that holds no batch, as in a container, with loader processes."""
    before = own_shared_memory(rolled.choice(["16k", "64k", "256k"]))
    if not before:
        return Tried(0, untried="only root can mount another /dev/shm")
    return _limited(bench, folder, NO_SHARED_MEMORY, before, "engine.num_workers=2")


def own_shared_memory(size: str) -> list[str]:
    """Words before a command that give it a /dev/shm of its own; none for others than root, who share the machine's."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"', "sh"]


def few_files(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """64 open files at most."""
    return _limited(bench, folder, NO_FILES, ["prlimit", "--nofile=64"], f"engine.num_workers={rolled.choice([0, 2])}")


def little_memory(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """Less address space than a training takes, or just enough."""
    return _limited(bench, folder, NO_MEMORY, ["prlimit", f"--as={int(rolled.uniform(4, 12) * 1e9)}"])


def two_in_one_folder(bench: Bench, folder: Path, _: Random) -> Tried:
    """A second training that begins in the folder of one that runs: it is refused."""
    tried, usual, run = Tried(), bench.usual(), folder / "run"
    first = bench.train(folder / "first", run=run)
    first.reaches(run / ".lock", usual + PATIENCE)
    commands = [first, bench.train(folder / "second", run=run)]
    for command in commands:
        command.end(tried, [0, 2], 3 * usual + PATIENCE, "another process is writing into it")
    if all(command.process.returncode for command in commands):
        tried.fail("lost", f"{run}: neither of two runs was left to end")
    judge(tried, run, set())
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

    def fault(bench: Bench, folder: Path, rolled: Random) -> Tried:
        tried, each = Tried(0), soak_images.images(bench.seconds)
        for loader in soak_images.LOADERS[kind]:
            arguments = (kind, loader), folder / loader, rolled.randrange(1 << 30), each
            ended = in_fresh_process(soak_images.read, *arguments, timeout=PATIENCE + each * SLOWEST)
            if isinstance(ended, Failure):
                tried.tries += 1
                tried.fail("hung" if "took more than" in ended.reason else "wrong ending", f"{loader}: {ended.reason}")
            else:
                count, words = ended
                tried.tries += count
                tried.failed += [("wrong ending", f"{loader}: {sentence}") for sentence in words]
        return tried

    return fault


def checkpoint_with_code(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A checkpoint that would run code when it is loaded."""
    tried, mark, path = Tried(), folder / "ran", folder / "evil.ckpt"
    torch.save({"state_dict": {}, "more": _Runs(mark)}, path)
    key, network = rolled.choice(["ckpt_path", "model.weights"]), "strobe.app.model.classifier.ImageClassifier"
    bench.train(folder, f"{key}={path}", f"model._target_={network}").end(
        tried, [1, 2], bench.usual() + PATIENCE, re.escape(str(path))
    )
    if mark.exists():
        tried.fail("lost", f"{key}={path} ran its code")
    return tried


def damaged_record(bench: Bench, folder: Path, rolled: Random) -> Tried:
    """A file of a finished run that is cut, or has other bytes, and the commands that read it.

    Each kind of file is as likely; some runs were of two ranks, and some were killed.
    """
    bench.usual()
    tried, run = Tried(0), folder / "run"
    for command in ("report", "compare", "view", "clean", "resume"):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(bench.finished / "run", run)
        (run / RANKS_FOLDER).mkdir()
        shutil.copy(run / "steps.csv", run / RANKS_FOLDER / "1.csv")
        if rolled.random() < 0.5:
            (run / "summary.json").rename(run / BEGUN)
        kind = ".ckpt" if command == "resume" else rolled.choice([".json", ".csv", ".yaml", ".gz"])
        path = rolled.choice(sorted(path for path in run.rglob(f"*{kind}") if path.is_file()))
        path.write_bytes(soak_images.damaged(path.read_bytes(), rolled))
        (own := folder / command).mkdir()
        tried.tries += 1
        if command == "resume":
            resumed = bench.train(own, f"ckpt_path={path}")
            resumed.end(tried, range(3), bench.usual() + PATIENCE, re.escape(str(path)))
        else:
            words = {"compare": [str(run), str(bench.finished / "run")], "view": [str(run), "--no-open"]}
            line = ["-m", f"strobe.{command}", *words.get(command, [str(run)])]
            Command(line, own).end(tried, range(5), 2 * PATIENCE)
    return tried


def long_training(*overrides: str) -> Fault:
    """A training of many steps: what it holds must not grow."""

    def fault(bench: Bench, folder: Path, _: Random) -> Tried:
        return _last_long(bench, folder, overrides, data=("data=eurosat", f"data.root={bench.tiny_tiles()}"))

    return fault


def long_from_storage(bench: Bench, folder: Path, _: Random) -> Tried:
    """The same from a storage on this machine, as LitData's engine reads it."""
    tiles = bench.tiny_tiles()
    (kept := folder / "storage").mkdir()
    try:
        with serving(kept) as endpoint:
            upload(endpoint, {f"soak/{path.relative_to(tiles)}": path for path in tiles.rglob("*.tif")})
            data = ("data=eurosat", f"data.root=s3://{BUCKET}/soak", f"data.endpoint={endpoint}")
            engine = ("engine=litdata", "engine.num_workers=2")
            return _last_long(bench, folder, engine, data=data, **CREDENTIALS)
    except DataError as error:
        return Tried(0, untried=str(error))


def _last_long(bench: Bench, folder: Path, overrides: Sequence[str], **options: Any) -> Tried:
    tried, held = Tried(), defaultdict[str, list[int]](list)
    seconds = max(LONG, bench.seconds / bench.faults)
    lasts = f"trainer.max_time={{seconds:{seconds:.0f}}}"
    command = bench.train(folder, *LASTING, lasts, *overrides, before=own_shared_memory("50%"), **options)
    while command.process.poll() is None:
        for name, count in holding(command.process.pid).items():
            held[name].append(count)
        time.sleep(0.5)
    command.end(tried, [0], PATIENCE)
    steps = (folder / "run" / "steps.csv").read_bytes().count(b"\n") - 1
    for name, counts in held.items():
        kept = counts[len(counts) // 3 : -3]  # when it has begun, and before it ends
        size = len(kept) // BLOCKS
        levels = [median(kept[place * size : (place + 1) * size]) for place in range(BLOCKS)]
        each = paired([after / before for before, after in pairwise(levels)])
        low, middle, high = ((end or math.nan) ** (BLOCKS - 1) - 1 for end in (each.low, each.middle, each.high))
        seen = round(steps * (BLOCKS - 1) * size / len(counts))
        known = f"{middle:+.2%} ({low:+.2%} to {high:+.2%})"
        tried.notes.append(f"{' '.join(overrides)}: {name} {known} in {seen:,} steps")
        if seen >= FEWEST and low > GROWTH * seen / MANY:
            tried.fail("grew", tried.notes[-1])
        elif seen < FEWEST or not high - low < UNKNOWN:
            tried.undecided = 1
            tried.notes[-1] += ", which is too few to tell" if seen < FEWEST else ", which is too uneven to tell"
    return tried


def holding(session: int) -> dict[str, int]:
    """What the processes of a session hold: bytes, descriptors and threads, and those in their /dev/shm; at least 1."""
    pids = members(session)
    counts = {"memory": sum(memory_of(pid) for pid in pids)}
    counts |= {name: sum(_entries(Path(f"/proc/{pid}/{kind}")) for pid in pids) for name, kind in KINDS.items()}
    with contextlib.suppress(OSError):  # it has ended
        # Which counts files that have no name any more.
        shared = os.statvfs(Path("/proc", str(session), "root", "dev", "shm"))
        counts["/dev/shm"] = (shared.f_blocks - shared.f_bfree) * shared.f_frsize
    return {name: max(1, count) for name, count in counts.items()}


def _entries(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(1 for _ in folder.iterdir())
    return 0


FAULTS: dict[str, Fault] = {
    **{number.name: ended_by(number) for number in (signal.SIGKILL, *REQUESTS)},
    "SIGUSR1": ended_by(signal.SIGUSR1, before=SLURM),
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
    "long training, no workers": long_training("engine.num_workers=0"),
    "long training, workers": long_training("engine.num_workers=2"),
    "long training, spdl": long_training("engine=spdl"),
    "long training, resident": long_training("engine=resident"),
    "long training, litdata": long_from_storage,
}


class _Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = str(mark)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (self._mark, "w")


def _limited(bench: Bench, folder: Path, why: str, before: Sequence[str], *overrides: str) -> Tried:
    """A training under a limit: it works, or says why not."""
    tried = Tried()
    command = bench.train(folder, *overrides, before=before)
    command.end(tried, [0, 1], bench.usual() + 2 * PATIENCE, why)
    judge(tried, folder / "run", set())
    return tried


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
