"""One function for each cause, and what it finds.

Every public function of a module here is a rule, which is given the run's record and its mean step.
"""

from dataclasses import asdict, dataclass
from typing import Any

from strobe.records.run import Figure


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
    predicted_speedup: Figure  # new over old ``overall_images_per_second``

    def as_dict(self) -> dict[str, Any]:
        """As it stands in ``summary.json``."""
        return asdict(self) | {"overrides": list(self.overrides)}
