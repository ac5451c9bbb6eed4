"""What the process of a script is asked to measure; read whenever a Trainer is made, so it imports nothing heavy."""

import json
import os
import shlex
from dataclasses import dataclass
from typing import Self

ASKED = "STROBE_PROBE"  # the variable of the environment: what is asked, as JSON
STEPS, LOADER, MODEL, TRANSFER, BETWEEN = "steps", "loader", "model", "transfer", "between"
# What can be measured, in this order: steps are those of ordinary training, and what else it does lies between them.
SIDES = (STEPS, LOADER, TRANSFER, MODEL, BETWEEN)
STAGES = {  # in words
    STEPS: "Ordinary training",
    LOADER: "The loader alone",
    TRANSFER: "Copies to the GPU alone",
    MODEL: "The model alone",
    BETWEEN: "Validation and checkpoints alone",
}


@dataclass(frozen=True)
class Asked:
    """What the process of a script is asked to measure.

    Attributes:
        command: what follows ``python``.
        folder: of the record.
        scratch: a folder that is removed afterwards.
        seconds: of each side, at most.
        sides: of ``SIDES``.
        pipe: number of the open file that leads to who asks.
        process: the one that has it; those that it starts as further ranks do not.
    """

    command: tuple[str, ...]
    folder: str
    scratch: str
    seconds: float
    sides: tuple[str, ...]
    pipe: int = -1
    process: int = -1

    @classmethod
    def read(cls) -> Self | None:
        """What this process is asked; None if it is asked nothing."""
        if not (text := os.environ.get(ASKED)):
            return None
        asked = json.loads(text)
        return cls(**asked | {name: tuple(asked[name]) for name in ("command", "sides")})

    @property
    def line(self) -> str:
        """The command as a person types it."""
        return shlex.join(["python", *self.command])
