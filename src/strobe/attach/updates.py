"""Which updates end the steps of a training whose batches come from no loader."""

import weakref
from typing import Any

FEWEST = 5  # steps of such a training: fewer try something out
ANOTHER = 20  # updates in a row by other optimizers, after which theirs end steps


class Updates:
    """In the place of a loader: updates of one optimizer end the steps.

    Where several step in turns, as in a GAN, all of their updates are one step.
    """

    def __init__(self, optimizer: Any) -> None:
        self._turns, self._others = weakref.ref(optimizer), 0

    def end_step(self, optimizer: Any) -> bool:
        """Whether the update that this optimizer has made ends a step."""
        self._others = 0 if optimizer is self._turns() else self._others + 1
        if self._others == ANOTHER:
            self._turns, self._others = weakref.ref(optimizer), 0
        return not self._others
