"""The ground-truth grid: does the first finding of a run name the bottleneck that was put into it, and is its
prediction right?

    python -m strobe.validation.accuracy [NAME ...] [KEY=VALUE ...] [--half HALF] [--minutes M] [--repeats N]
        [--ledger FILE] [--keep FOLDER] [--seed N]
    python -m strobe.validation.accuracy --show [--ledger FILE]

Each cell (``accuracy_cells``; NAME chooses one, default: all) is a short training in a process of its own.
Its first finding's command is then run in another, and the ratio of their images/s is held against the prediction.
Cells come in random order, round after round, one process at a time; on a machine that does other work the figures are
worth little. KEY=VALUE goes to every run. Each result is a line of the ledger as soon as it is there, and a later
command adds to the same one; --show prints what it holds as Markdown. CIFAR-10 is taken from $STROBE_DATA; where it is
not there, photos of its form are generated.
"""

import argparse
import contextlib
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.app.run.apart import ROOT, train
from strobe.bench.inputs import write_cifar10
from strobe.diagnose.calibrated import calibration
from strobe.diagnose.rank import command
from strobe.errors import StrobeError
from strobe.overrides import joined
from strobe.present import terminal
from strobe.process.signals import exit_code
from strobe.records.run import Record, load_record, rate_of
from strobe.validation import experiment, ledger
from strobe.validation.accuracy_cells import HALVES, GridCell, cells
from strobe.validation.ledger import Entry
from strobe.validation.lines import reaching

LEDGER = Path("outputs", "accuracy.jsonl")
TIMEOUT = 600.0  # seconds of one run, its measurements of ceilings included
PHOTOS = "cifar-10-batches-py"
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells, add them to the ledger, and print its figures, also after Ctrl-C; one sentence for a wrong one."""
    options, code = parse(arguments), 0
    console = terminal.console()
    try:
        if not options.show:
            try:
                run(options, console)
            except KeyboardInterrupt as interrupt:
                code = exit_code(interrupt)
        entries = ledger.read(options.ledger)
    except StrobeError as error:
        raise SystemExit(str(error)) from None
    terminal.say(console, *ledger.markdown(entries))
    terminal.say(
        console, *sorted({f"{entry.machine}, commit {entry.commit[:10]}" for entry in entries if entry.commit})
    )
    if code:
        sys.exit(code)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """``cells``, ``overrides``, and the options as the module's text has them; exits on a wrong one."""
    parser = experiment.arguments("accuracy", "The ground-truth grid.", seed="of the order of cells")
    parser.add_argument("given", nargs="*", metavar="NAME or KEY=VALUE", help="a cell, or an override for every run")
    parser.add_argument("--half", choices=HALVES, help="only this part of the cells")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no cell that would end later")
    parser.add_argument("--repeats", type=int, default=1, help="rounds in which each cell is run (1)")
    parser.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE", help=f"add to this one ({LEDGER})")
    parser.add_argument("--show", action="store_true", help="only print what the ledger holds")
    options = parser.parse_intermixed_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats} is out of range; it must be at least 1")
    options.overrides = [word for word in options.given if experiment.is_override(word)]
    names = [word for word in options.given if not experiment.is_override(word)]
    known = {cell.name: cell for cell in cells()}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{unknown[0]!r} is not a cell; choose from {', '.join(map(repr, known))}")
    chosen = [known[name] for name in names] or list(known.values())
    options.cells = [cell for cell in chosen if options.half in (None, cell.half)]
    return options


def run(options: argparse.Namespace, console: Any) -> None:
    """Round after round, until the time is up; what was not run is named."""
    order = random.Random(options.seed)
    todo = [cell for _ in range(options.repeats) for cell in order.sample(options.cells, len(options.cells))]
    began, deadline = time.monotonic(), 60 * (options.minutes or float("inf"))
    with experiment.folder_of(None) as scratch, experiment.folder_of(options.keep) as kept:
        variables = data_variables(scratch)
        for number, cell in enumerate(todo):
            passed = time.monotonic() - began
            each = passed / number if number else 0.0
            if passed + each > deadline:
                terminal.say(console, f"Time is up; not run: {', '.join(cell.name for cell in todo[number:])}")
                break
            folder = kept / f"{cell.name}-{number}"
            entry = run_cell(cell, options.overrides, folder, variables)
            ledger.append(options.ledger, entry)
            left = (time.monotonic() - began) / (number + 1) * (len(todo) - number - 1)
            terminal.say(console, f"[{number + 1}/{len(todo)}, {left / 60:.0f} min left] {told(entry)}")
            if options.keep is None:
                shutil.rmtree(folder, ignore_errors=True)


def run_cell(cell: GridCell, more: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Entry:
    """The cell's run, and the one with the overrides of its first finding, each in a fresh process."""
    began, measured = time.monotonic(), None
    failure: str | None = None

    def trained(overrides: Sequence[str], name: str) -> Record:
        nonlocal failure
        ended = train(overrides, folder / name, timeout=TIMEOUT, variables={**variables, **reach})
        failure = ended.error
        return Record({}) if failure else load_record(ended.folder)

    with beside(cell.beside), reaching(cell.line, folder) as (stored, reach):
        base = trained(joined(cell.overrides, [*stored, *more]), "base")
        finding: dict[str, Any] = next(iter(base.items("findings")), {})
        if overrides := finding.get("overrides"):
            prescribed = shlex.split(command(base, overrides))[2:]
            after = rate_of(trained(joined(prescribed, ["ceilings=false"]), "changed"))
            if after and (before := rate_of(base)):
                measured = after / before
    predicted, stretched = finding.get("predicted_speedup"), calibration()
    return Entry(
        cell=cell.name,
        half=cell.half,
        strength=cell.strength,
        size=cell.size,
        cause=cell.cause,
        found=finding.get("cause"),
        overrides=list(finding.get("overrides") or ()),
        predicted=predicted,
        quantile=stretched.quantile if stretched and predicted and predicted.get("level") else None,
        measured=measured,
        lost=finding.get("lost"),
        failure=failure,
        host=base.text("environment", "host"),
        machine=f"{base.text('environment', 'cpu')}, {base.count('environment', 'usable_cores')} cores",
        commit=base.text("environment", "git_commit"),
        seconds=round(time.monotonic() - began, 1),
        also=list(cell.also),
        title=finding.get("title"),
    )


@contextlib.contextmanager
def beside(count: int) -> Iterator[None]:
    """So many other processes that compute meanwhile; each ends with this one at the latest."""
    others = []
    try:
        for _ in range(count):
            others.append(subprocess.Popen([sys.executable, "-c", BUSY]))
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def told(entry: Entry) -> str:
    """An outcome, in a line while others are still to come."""
    sentence = f"first finding {entry.found or 'none'}, {'right' if entry.right else 'WRONG'}"
    if entry.predicted and entry.measured:
        sentence += f"; predicted {entry.predicted['median']:.2f}, measured {entry.measured:.2f}"
    return f"{entry.cell}: {entry.failure or sentence} ({entry.seconds:.0f} s)"


def data_variables(scratch: Path) -> dict[str, str]:
    """Environment variables with which ``data=cifar10`` finds its photos; they are generated if there are none."""
    root = Path(os.environ.get("STROBE_DATA", ROOT / "data"))
    folders = [root, *(path for path in root.iterdir() if path.is_dir())] if root.is_dir() else []
    if any((folder / PHOTOS).is_dir() for folder in folders):
        return {"STROBE_DATA": str(root.absolute())}
    write_cifar10(scratch / PHOTOS)
    return {"STROBE_DATA": str(scratch)}


if __name__ == "__main__":
    main()
