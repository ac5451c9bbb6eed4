"""From the ledger of the ground-truth grid to intervals that hold: the calibration that the program comes with.

    python -m strobe.validation.calibrate LEDGER [--dry-run]

By split-conformal prediction over the held-out and fresh cells, on which no rule was developed, each with its last
prediction. Prints how many of the measured speed-ups lie in intervals stretched so: with each cause by the others'
cells, and of the developed and the unseen cells, which are not used. (With single cells left out, as many would lie
inside as the level says.)
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from strobe.diagnose.calibrated import Calibration
from strobe.errors import StrobeError
from strobe.measure.statistics import conformal
from strobe.validation.accuracy_cells import HALVES
from strobe.validation.experiment import interval_of
from strobe.validation.ledger import Entry, read

LEVEL = 0.9
USED = ("held_out", "fresh")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write and tell; exits with a sentence when there are too few predictions."""
    parser = argparse.ArgumentParser(prog="python -m strobe.validation.calibrate", description="Calibrate intervals.")
    parser.add_argument("ledger", type=Path, help="as strobe.validation.accuracy wrote it")
    parser.add_argument("--dry-run", action="store_true", help="only tell")
    options = parser.parse_args(arguments)
    try:
        calibration = calibrate(entries := read(options.ledger))
    except StrobeError as error:
        raise SystemExit(str(error)) from None
    if calibration is None:
        raise SystemExit(
            f"{options.ledger}: too few predictions of held-out and fresh cells were measured; 9 are needed"
        )
    print(*told(entries, calibration), sep="\n")
    if not options.dry_run:
        calibration.save()


def calibrate(entries: Iterable[Entry]) -> Calibration | None:
    """By the cells on which no rule was developed; None if they are too few."""
    chosen = last([entry for entry in entries if entry.half in USED])
    quantile = conformal([score for _, score in chosen], LEVEL)
    if quantile is None:
        return None
    machines, commits = (
        {value for entry, _ in chosen if (value := getattr(entry, name))} for name in ("machine", "commit")
    )
    return Calibration(LEVEL, quantile, len(chosen), "; ".join(sorted(machines)), ", ".join(sorted(commits)))


def last(entries: Iterable[Entry]) -> list[tuple[Entry, float]]:
    """Of each cell the last entry whose prediction was put to the test, and its score."""
    return list({entry.cell: (entry, score) for entry in entries if (score := entry.score) is not None}.values())


def told(entries: Sequence[Entry], fit: Calibration) -> list[str]:
    """What it comes to, and the coverage."""
    chosen = last([entry for entry in entries if entry.half in USED])
    inside = total = 0
    for cause in {entry.found for entry, _ in chosen}:
        others = conformal([score for entry, score in chosen if entry.found != cause], LEVEL)
        own = [score for entry, score in chosen if entry.found == cause]
        if others is not None:
            inside += sum(score <= others for score in own)
            total += len(own)
    lines = [f"Intervals are stretched by {fit.quantile:.2f}, by {fit.cells} predictions ({LEVEL:.0%})."]
    if total:
        lines.append(f"Each cause by the others' cells: {inside} of {total} held ({interval_of(inside, total)}).")
    for half in HALVES:
        if half not in USED and (other := last([entry for entry in entries if entry.half == half])):
            held = sum(score <= fit.quantile for _, score in other)
            lines.append(f"The {half} cells: {held} of {len(other)} held ({interval_of(held, len(other))}).")
    return lines


if __name__ == "__main__":
    main()
