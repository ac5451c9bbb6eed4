"""What a sweep measures, in which order, and what its cells are called."""

from collections.abc import Sequence

from strobe.errors import ConfigError
from strobe.measure.rounds import rounds
from strobe.records.sweep import OWN, Cell


def of_cells(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
    """The overrides of each cell: those of Hydra's jobs, less the sweep's own.

    Raises:
        ConfigError: two cells would be the same.
    """
    cells: list[list[str]] = []
    for job in jobs:
        own = [text for text in job if text.lstrip("+~").startswith(OWN)]
        cell = [text for text in job if text not in own]
        if any(set(cell) == set(other) for other in cells):
            reason = f"{own[0].partition('=')[0]} is of the sweep as a whole" if own else "a value is given twice"
            raise ConfigError(
                f"Two cells of this sweep are the same ({' '.join(cell) or 'no overrides'}): {reason}; give each value "
                "once, and sweep.repeats=N for more runs of each cell"
            )
        cells.append(cell)
    return cells


def in_order(cells: Sequence[Cell], repeats: int, seed: int) -> list[tuple[int, Cell]]:
    """(Repeat from 1, cell) of each run, in random interleaved rounds."""
    return list(rounds(sorted(cells, key=lambda cell: cell.number), range(1, repeats + 1), seed))


def names(cells: Sequence[Cell]) -> dict[int, str]:
    """By number, the overrides in which a cell differs from others; all of them if there is only one."""
    common = frozenset.intersection(*(cell.key for cell in cells)) if len(cells) > 1 else frozenset()
    return {cell.number: " ".join(text for text in cell.overrides if text not in common) for cell in cells}
