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
