"""How cost grows with files of a data set, steps of a run, and cells of a sweep.

    python -m strobe.validation.scale [--files N ...] [--steps N ...] [--cells N ...]

Prints tables in Markdown. All is made up: files are links to one photo in 1,000 folders, steps are those of a short run
again and again, and so are the runs of a sweep. ``CPU s`` are seconds of a command's processors, which other processes
change less than ``s``, the clock's. ``first batch`` compares a training until its first batch, without its workers,
with walking the folders by ``os.scandir`` and importing what it imports; ``listing`` and ``split`` are the parts of it
that grow with the files.
"""

import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from PIL import Image

from strobe.app.config.compose import BARE, UNVALIDATED
from strobe.app.config.roots import PHOTOS
from strobe.app.data.base import stratified_split
from strobe.app.data.folders import files_of_classes, flat
from strobe.app.run.apart import ROOT
from strobe.app.storage.local import LocalFolder
from strobe.records.run import read_summary
from strobe.records.sweep import Run, Sweep, SweepCell
from strobe.validation import experiment

FOLDERS, MOST_LINKS = 1_000, 20_000  # of a data set; to one file, which file systems limit
EVERY = 0.01  # seconds between two looks at memory
FILES, STEPS, CELLS = (10_000, 100_000, 1_280_000), (10_000, 100_000, 1_000_000), (5, 50, 500)
WALK = """
import os, sys
import strobe.app.run.train, strobe.app.data.image_folder, strobe.app.loaders.pil, strobe.validation.scale
print(sum(entry.is_file() for one in os.scandir(sys.argv[1]) if one.is_dir() for entry in os.scandir(one.path)))
"""
READ = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
EventAccumulator(sys.argv[1]).Reload()
"""
TRAINING = (
    "data=image_folder",
    "data.size=32",
    "data.framing=resize",
    "engine.num_workers=2",
    "trainer.accelerator=cpu",
    "trainer.max_steps=12",
    *UNVALIDATED,
    *BARE,
    "checkpoint.save=resume",
    "model._target_=strobe.validation.injected_faults.SmallClassifier",
    "+callbacks.first._target_=strobe.validation.scale.FirstBatch",
)


class FirstBatch(Callback):
    """Writes into ``path`` what was spent until the first batch: CPU seconds, those since ``began``, and bytes."""

    def __init__(self, path: str, began: float) -> None:
        self.path = Path(path)
        self.began = began

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Write it."""
        if trainer.global_step == 0:
            own = max(_memory(f"{child.pid}/smaps_rollup", "Private_") for child in active_children())
            seconds = {"seconds": time.process_time(), "clock": time.time() - self.began}
            self.path.write_text(json.dumps(seconds | {"peak": _memory("self/status", "VmHWM"), "worker": own}))


def _memory(file: str, name: str) -> int:
    """Bytes, by the lines of a file in /proc whose names begin so; 0 of a process that has ended."""
    with suppress(OSError):
        lines = Path("/proc", file).read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
    return 0


def spent(*words: str) -> tuple[float, int]:
    """Seconds of the processor that a command of this Python took, and bytes of memory at its peak."""
    peak, ended = 0, 0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        while not ended:
            peak = max(peak, _memory(f"{process.pid}/status", "VmHWM"))
            time.sleep(EVERY)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            tail = errors.read().decode().strip()[-300:]
            raise SystemExit(f"{' '.join(words)[:200]} ended with {process.returncode}: {tail}")
    return usage.ru_utime + usage.ru_stime, peak


def plant(root: Path, count: int) -> None:
    """``FOLDERS`` class folders with ``count`` photos in all."""
    photo, made = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8), 0
    for folder in (root / f"n{number:08}" for number in range(FOLDERS)):
        folder.mkdir(parents=True)
        for number in range(count // FOLDERS):
            path = f"{folder}/{number:08}.JPEG"
            if made % MOST_LINKS == 0:
                Image.fromarray(photo).save(first := path)
            else:
                os.link(first, path)
            made += 1


def of_files(scratch: Path, count: int) -> list[str]:
    """A row: the first batch of so many files."""
    root, run = scratch / f"files{count}", scratch / f"run{count}"
    plant(root, count)
    began = time.time()
    bare, _ = spent("-c", WALK, str(root))
    walked = time.time() - began
    folder = LocalFolder(root)
    (paths, labels), *listing = timed(
        lambda: flat(folder, files_of_classes(folder, PHOTOS, below=True), PHOTOS, "photo")
    )
    _, *split = timed(lambda: stratified_split(labels, (0.8, 0.1, 0.1), seed=0))
    assert len(paths) == count
    overrides = (f"data.root={root}", f"hydra.run.dir={run}", f"+callbacks.first.path={run}/first.json")
    spent("train.py", *TRAINING, *overrides, f"+callbacks.first.began={time.time()}")
    first_batch = json.loads((run / "first.json").read_text())
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    order = len(pickle.dumps(state["loops"]))
    parts = [f"{seconds:.2g}" for seconds in (*listing, *split)]
    first = [
        f"{first_batch['seconds'] / bare:.2f}",
        f"{first_batch['clock'] / walked:.2f}",
        _mb(first_batch["peak"]),
        _mb(first_batch["worker"]),
    ]
    return _row(count, *parts, bare, walked, first_batch["seconds"], first_batch["clock"], *first, order)


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call returns, and the CPU seconds and seconds that it took."""
    cpu, began = time.process_time(), time.perf_counter()
    return call(), time.process_time() - cpu, time.perf_counter() - began


def of_steps(scratch: Path, count: int, short: Path) -> list[str]:
    """A row: the report and TensorBoard of a run of so many steps."""
    from torch.utils.tensorboard import SummaryWriter

    run = scratch / f"steps{count}"
    run.mkdir()
    (run / "summary.json").write_bytes((short / "summary.json").read_bytes())
    head, *rows = (short / "steps.csv").read_text().splitlines(keepends=True)
    with (run / "steps.csv").open("w") as file:
        file.write(head)
        file.writelines(f"{step},{step // 1000},{rows[step % len(rows)].split(',', 2)[2]}" for step in range(count))
    with SummaryWriter(str(run / "tensorboard")) as board:
        for step in range(count):
            board.add_scalar("train/step_loss", 1 / (1 + step), step)
    report, peak = spent("-m", "strobe.report", str(run))
    shown, _ = spent("-c", READ, str(run / "tensorboard"))
    page = (run / "report.html").stat().st_size
    return _row(count, report, f"{1e6 * report / count:.1f}", _mb(peak), f"{page / 1e3:.0f}", shown)


def of_cells(scratch: Path, count: int, short: Path) -> list[str]:
    """A row: the comparison of so many cells, each of two runs."""
    folder, summary = scratch / f"cells{count}", read_summary(short / "summary.json")
    sweep = Sweep("made up", [], 2, 0, "2026-01-01", "completed", 1.0)
    rates = random.Random(0)
    for number in range(count):
        cell = SweepCell(number, [f"data.batch_size={8 + number}"])
        for repeat in (1, 2):
            name = f"{number}.{repeat}"
            (folder / name).mkdir(parents=True)
            changed = {"overrides": [*cell.overrides, f"seed={repeat}"], "batch_size": 8 + number}
            changed["overall_images_per_second"] = 100 + number % 37 + rates.random()
            (folder / name / "summary.json").write_text(json.dumps(summary | changed))
            cell.runs.append(Run(repeat, name, "completed", None, 1.0))
        sweep.cells.append(cell)
    sweep.save(folder)
    seconds, peak = spent("-m", "strobe.compare", str(folder))
    page = (folder / "comparison.html").stat().st_size
    return _row(count, seconds, f"{1e3 * seconds / count:.1f}", _mb(peak), f"{page / 1e3:.0f}")


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f}"


def _row(count: int, *cells: object) -> list[str]:
    return [f"{count:,}", *(f"{cell:.1f}" if isinstance(cell, float) else f"{cell}" for cell in cells)]


def table(heads: Sequence[str], counts: Iterable[int], row: Callable[[int], list[str]]) -> None:
    """Print a table, each row when it is known."""
    print("", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", sep="\n", flush=True)
    for count in counts:
        print(f"| {' | '.join(row(count))} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = experiment.arguments("scale", (__doc__ or "").partition("\n")[0], seed="of nothing")
    for name, usual in (("files", FILES), ("steps", STEPS), ("cells", CELLS)):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=usual, metavar="N", help=f"of {name}")
    options = parser.parse_args(arguments)
    with experiment.folder_of(options.keep) as scratch:
        parts = ("listing", "split", "walk and imports", "first batch")
        heads = ["files", *(f"{part}, {unit}" for part in parts for unit in ("CPU s", "s")), "times, CPU", "times"]
        heads += ["peak, MB", "a worker's own, MB"]
        table([*heads, "order in a checkpoint, bytes"], options.files, lambda count: of_files(scratch, count))
        short = scratch / f"run{options.files[0]}"
        heads = ["steps", "report, CPU s", "a step, µs", "peak, MB", "page, kB", "TensorBoard reads it, CPU s"]
        table(heads, options.steps, lambda count: of_steps(scratch, count, short))
        heads = ["cells", "compare, CPU s", "a cell, ms", "peak, MB", "page, kB"]
        table(heads, options.cells, lambda count: of_cells(scratch, count, short))


if __name__ == "__main__":
    main()
