"""One function for each cause, and what it finds.

Every public function of a module here is a rule, which is given the run's record and its mean step.
"""

from dataclasses import asdict, dataclass
from typing import Any

from strobe.records.run import Figure


@dataclass(frozen=True)
class Remedy:
    """Another way to lessen a cause, beside the first one."""

    advice: str
    overrides: tuple[str, ...]
    predicted_speedup: Figure


@dataclass(frozen=True)
class Finding:
    """One cause, in the words of a person who has to act on it, and what to do about it.

    Attributes:
        overrides: Hydra's, which exist for this run; empty where only code or hardware can be changed.
        subject: the callback's class or the phase, where several findings can have one cause.
        lost: the share of training that goes to this cause, by attribution; None until that is known.
        remedies: other ways to lessen it.
    """

    cause: str
    title: str
    evidence: str
    advice: str
    overrides: tuple[str, ...]
    predicted_speedup: Figure  # new over old ``overall_images_per_second``
    subject: str = ""
    lost: float | None = None
    remedies: tuple[Remedy, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As it stands in ``summary.json``."""
        remedies = [asdict(remedy) | {"overrides": list(remedy.overrides)} for remedy in self.remedies]
        return asdict(self) | {"overrides": list(self.overrides), "remedies": remedies}
