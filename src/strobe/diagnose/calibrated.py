"""Intervals of predictions, stretched so that they hold what is measured as often as they say.

How often they did is known from a ledger of predictions and what was measured then: docs/diagnosis.md.
"""

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from strobe.errors import DataError
from strobe.records.run import Figure

MOST_WIDTH = 10.0  # of an interval, on either side, as a logarithm: a wider one says no more
OTHER_ERRORS = 0.15  # of a prediction, as a logarithm, beside the noise that its interval holds: of the model of a step
CALIBRATION = Path(__file__).with_name("calibration.json")


@dataclass(frozen=True)
class Calibration:
    """How far intervals are stretched so that they hold the measured value in a share ``level`` of cases.

    It was measured on ``cells`` of the ground-truth grid that no rule was developed on, on a ``machine``, with the
    program of a ``commit``.
    """

    level: float
    quantile: float
    cells: int
    machine: str
    commit: str

    def save(self, path: Path = CALIBRATION) -> None:
        """Write the file that Strobe reads at its next start."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


@cache
def calibration(path: Path = CALIBRATION) -> Calibration | None:
    """The calibration that ships with Strobe; None without its file.

    Raises:
        DataError: The file is damaged.
    """
    if not path.is_file():
        return None
    try:
        return Calibration(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path} is damaged ({error}); write it again by python -m strobe.validation.calibrate"
        ) from None


def widths(median: float, low: float, high: float) -> tuple[float, float]:
    """How far an interval reaches below and above its median, as logarithms, with ``OTHER_ERRORS`` in quadrature."""
    below, above = math.log(median / max(low, 1e-9)), math.log(high / median)
    return math.hypot(OTHER_ERRORS, below), math.hypot(OTHER_ERRORS, above)


def calibrated(own: Figure) -> Figure:
    """A prediction, its interval stretched by the calibration; without one it stays as it is, and has no level.

    By split-conformal prediction, with errors measured in widths of the prediction's own interval (Angelopoulos and
    Bates, "A gentle introduction to conformal prediction", 2021, section 2.3): noisier predictions stay wider.
    """
    if (known := calibration()) is None:
        return own
    below, above = (
        math.exp(min(known.quantile * width, MOST_WIDTH)) for width in widths(own.median, own.low, own.high)
    )
    return Figure(own.median, own.median / below, own.median * above, known.level)
