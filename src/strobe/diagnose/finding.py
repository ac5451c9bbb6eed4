"""What a rule says: a cause, its evidence, what to change, and by how much that is predicted to help."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Speedup:
    """New over old ``overall_images_per_second``, with what measurement noise and unknown overlap leave open."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Finding:
    """One cause, in the words of a person who has to act on it.

    ``overrides`` are Hydra's, and exist for this run; empty where only code or hardware can be changed.
    """

    cause: str
    title: str
    evidence: str
    advice: str
    overrides: tuple[str, ...]
    predicted_speedup: Speedup

    def as_dict(self) -> dict[str, Any]:
        """As it stands in ``summary.json``."""
        return asdict(self) | {"overrides": list(self.overrides)}


def percent(share: float) -> str:
    """A share in words: 61%."""
    return f"{100 * share:.0f}%" if share >= 0.0095 or share == 0 else f"{100 * share:.1f}%"


def figure(value: float) -> str:
    """A figure in words: 1,060, or 3.1 where it is small."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def pace(images_per_second: float) -> str:
    """A rate in words: 1,060 images/s."""
    return f"{figure(images_per_second)} images/s"


def counted(count: int, thing: str) -> str:
    """A number of things in words: 1 worker, 2 workers."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def duration(seconds: float) -> str:
    """Seconds in words: 12.3 ms, 1.2 s."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"
