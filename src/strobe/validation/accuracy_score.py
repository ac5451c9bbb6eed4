"""What the ground-truth grid found, as pure functions from cells and the records of their runs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from strobe.measure.statistics import quantile
from strobe.validation.accuracy_cells import Cell

RATE = "overall_images_per_second"
LOADER_BOUND = "loader"
AIMS = {"right": 0.95, "false loader-bound": 0, "median error": 0.10, "p90 error": 0.20}


@dataclass
class Runs:
    """The records (``summary.json``) that a cell's runs left, in turn: as given, and as its first finding says."""

    base: list[dict[str, Any]] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None  # why there are no more


@dataclass(frozen=True)
class Result:
    """One cell, judged; speed-ups are ratios of images/s, None where they are not known."""

    cell: Cell
    found: str | None  # the first finding's cause
    overrides: tuple[str, ...]
    predicted: tuple[float, float, float] | None  # median, low, high
    measured: float | None
    failure: str | None

    @property
    def right(self) -> bool:
        """Whether the first finding is the right one; a run that failed found nothing."""
        return self.cell.accepts(self.found)

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1."""
        return self.predicted[0] / self.measured - 1 if self.predicted and self.measured else None

    @property
    def inside(self) -> bool | None:
        """Whether the measured speed-up lies in the predicted interval."""
        return self.predicted[1] <= self.measured <= self.predicted[2] if self.predicted and self.measured else None


@dataclass(frozen=True)
class Score:
    """All cells together; shares and errors are None where there is nothing to count."""

    injected: int
    right: int
    controls: int
    controls_right: int
    loader_bound: int  # controls that were called so
    predictions: int  # with a measured speed-up beside them
    inside: int
    median_error: float | None  # of |predicted / measured - 1|
    p90_error: float | None
    failed: int

    @property
    def share_right(self) -> float | None:
        """Of the cells with an injected bottleneck."""
        return self.right / self.injected if self.injected else None


def first_finding(record: dict[str, Any]) -> dict[str, Any]:
    """The finding that is ranked first; empty if there is none."""
    findings = record.get("findings") or [{}]
    return dict(findings[0])


def judge(cell: Cell, runs: Runs) -> Result:
    """Hold the first run's first finding against the cell, and its prediction against the runs.

    The measured speed-up is the median over pairs of a base run and the changed run after it.
    """
    finding = first_finding(runs.base[0]) if runs.base else {}
    speedup = finding.get("predicted_speedup") or {}
    median, low, high = (speedup.get(key) for key in ("median", "low", "high"))
    rates = [(base.get(RATE), changed.get(RATE)) for base, changed in zip(runs.base, runs.changed, strict=False)]
    ratios = [after / before for before, after in rates if before and after]
    return Result(
        cell=cell,
        found=finding.get("cause"),
        overrides=tuple(finding.get("overrides") or ()),
        predicted=(median, low, high) if median and low and high else None,
        measured=statistics.median(ratios) if ratios else None,
        failure=runs.failure,
    )


def score(results: Sequence[Result]) -> Score:
    """Count and summarise."""
    injected = [result for result in results if result.cell.cause is not None]
    controls = [result for result in results if result.cell.cause is None]
    errors = sorted(abs(result.error) for result in results if result.error is not None)
    return Score(
        injected=len(injected),
        right=sum(result.right for result in injected),
        controls=len(controls),
        controls_right=sum(result.right for result in controls),
        loader_bound=sum(result.found == LOADER_BOUND for result in controls),
        predictions=len(errors),
        inside=sum(result.inside is True for result in results),
        median_error=quantile(errors, 0.5),
        p90_error=quantile(errors, 0.9),
        failed=sum(result.failure is not None for result in results),
    )


def table(results: Sequence[Result]) -> Table:
    """One row a cell, those that failed too."""
    columns = ("cell", "injected", "first finding", "", "overrides", "predicted", "measured", "error")
    drawn = Table(*columns, title="ground-truth grid: speed-ups are ratios of images/s")
    for result in results:
        predicted = result.predicted and "{:.2f} ({:.2f} to {:.2f})".format(*result.predicted)
        drawn.add_row(
            result.cell.name,
            result.cell.cause or "nothing",
            result.found or "-",
            "right" if result.right else "WRONG",
            " ".join(result.overrides) or "-",
            predicted or "-",
            "-" if result.measured is None else f"{result.measured:.2f}",
            result.failure or ("-" if result.error is None else f"{result.error:+.0%}"),
        )
    return drawn


def lines(total: Score) -> list[str]:
    """The figures beside the aims."""
    return [
        f"first finding right: {total.right} of {total.injected} injected causes ({_share(total.share_right)}; "
        f"aim {AIMS['right']:.0%})",
        f"controls called loader-bound: {total.loader_bound} of {total.controls} (aim {AIMS['false loader-bound']}); "
        f"controls right: {total.controls_right}",
        f"prediction error: median {_share(total.median_error)} (aim {AIMS['median error']:.0%}), "
        f"90th percentile {_share(total.p90_error)} (aim {AIMS['p90 error']:.0%}), of {total.predictions} predictions",
        f"measured within the predicted interval: {total.inside} of {total.predictions}",
        f"cells that failed: {total.failed}",
    ]


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"
