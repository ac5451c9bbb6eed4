"""One function for each cause, and what it finds.

Every public function of a module here is a rule, and so is each of its ``RULES``, which it makes from a table. A rule
takes the run's record and its mean step.
"""

from dataclasses import asdict, dataclass
from typing import Any

from strobe.records.run import Figure

FINE, NO_CERTAIN, NO_CAUSE = "Nothing to fix", "No certain gain", "No cause found"  # titles of ``nothing``
NAMES_LINES = " profiler=python names the lines."  # at the end of advice, where none is known


@dataclass(frozen=True)
class Remedy:
    """Another remedy for a cause, beside the first one."""

    advice: str
    overrides: tuple[str, ...]
    predicted_speedup: Figure


@dataclass(frozen=True)
class Finding:
    """One cause, and what to do about it.

    Attributes:
        overrides: Hydra overrides that this run accepts; empty if only code or hardware can be changed.
        subject: the callback's class or the phase, for causes that can have several findings.
        lost: the share of training time that this cause takes, by attribution; None until that is known.
        share: of training time, also what other findings explain; None where that is the same.
        partial: whether it also costs time where that is not seen.
        remedies: other remedies.
        changes: overrides that ``strobe tune`` can make from outside, in somebody else's script, which takes none.
    """

    cause: str
    title: str
    evidence: str
    advice: str
    predicted_speedup: Figure  # new over old ``overall_images_per_second``
    overrides: tuple[str, ...] = ()
    subject: str = ""
    lost: float | None = None
    share: float | None = None
    partial: bool = False
    remedies: tuple[Remedy, ...] = ()
    changes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The entry in ``summary.json``."""
        remedies = [asdict(remedy) | {"overrides": list(remedy.overrides)} for remedy in self.remedies]
        lists = {"overrides": list(self.overrides), "changes": list(self.changes)}
        return asdict(self) | lists | {"remedies": remedies}
