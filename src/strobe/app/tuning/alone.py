"""One side of a training after the other, measured alone in a process of its own, as it is asked for."""

import contextlib
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from strobe.app.build import PRELOAD
from strobe.app.tuning.trainee import telling
from strobe.process.fork import Failure, FreshProcess


class Alone:
    """Measures sides of a configuration and of what differs from it; :meth:`close` ends its process.

    Args:
        overrides: of ``train.py``.
        folder: ``output.txt`` in it holds what is printed.
        timeout: seconds that one measurement may take.
    """

    def __init__(self, overrides: Sequence[str], folder: Path, *, timeout: float) -> None:
        self.overrides = tuple(overrides)
        self.folder, self.timeout = folder, timeout
        self._process: FreshProcess | None = None

    def measure(self, side: str, changes: Sequence[str]) -> dict[str, object] | None:
        """As ``ceilings.alternatives`` has it; None if it cannot be measured: the process is begun anew after that."""
        if self._process is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._process = FreshProcess(_serve, self.overrides, self.folder, preload=[PRELOAD], guarded=True)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            self._process.pipe.send((side, list(changes)))
        found = self._process.receive(self.timeout)
        if isinstance(found, Failure):
            self.close()
            return None
        return dict(found) if found else None

    def close(self) -> None:
        """End it, and all that it has started. A second call does nothing."""
        if self._process is not None:
            self._process.close()
            self._process = None


def _serve(pipe: Connection, overrides: Sequence[str], folder: Path) -> None:
    """The body of the process: measure what is asked for until nobody asks any more."""
    with telling(pipe, folder), contextlib.suppress(EOFError):
        import torch

        from strobe.app.build.instantiate import set_up_data
        from strobe.app.config.compose import recomposed
        from strobe.app.config.register import composing
        from strobe.app.run.ceilings import Ceilings
        from strobe.app.run.train import quieten

        quieten()
        with composing(), recomposed(overrides) as cfg:
            if cfg.threads is not None:
                torch.set_num_threads(cfg.threads)
            torch.manual_seed(cfg.seed)
            ceilings = Ceilings(cfg, set_up_data(cfg), overrides)
            while True:
                pipe.send(ceilings.alternative(*pipe.recv(), turns=True))
