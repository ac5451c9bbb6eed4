"""The application's own training, which takes turns; and the processes in which it is measured."""

import contextlib
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from hydra.errors import HydraException

from strobe.app.build import PRELOAD
from strobe.duel import turning
from strobe.duel.training import TakesTurns
from strobe.errors import ConfigError, StrobeError
from strobe.process.fork import MEMORY, Failure, print_into
from strobe.records.places import OUTPUT


class Trainee(TakesTurns):
    """One configuration, given as overrides of ``train.py``, that takes turns.

    It trains with all its callbacks and its logger, without an end, validation, checkpoints, schedule and profiler.
    Callbacks write into ``folder``, where ``output.txt`` holds what is printed.
    """

    def __init__(self, overrides: Sequence[str], folder: Path, *, timeout: float) -> None:
        super().__init__(folder, _train, tuple(overrides), folder, timeout=timeout, preload=[PRELOAD])


def _train(pipe: Connection, overrides: Sequence[str], folder: Path) -> None:
    """The body of the process."""
    with telling(pipe, folder):
        train(pipe, overrides, folder)


def train(pipe: Connection, overrides: Sequence[str], folder: Path) -> None:
    """Train with these overrides of ``train.py``, and take turns, until this process is ended.

    Raises a :class:`ConfigError` for a value that cannot work, a :class:`DataError` for data that cannot be loaded.
    """
    import torch

    from strobe.app.build.instantiate import build
    from strobe.app.config.checks import check
    from strobe.app.config.compose import endless
    from strobe.app.run.train import prepare_process, quieten
    from strobe.callbacks.lightnings import Callback

    cfg = endless(overrides)
    check(cfg)
    prepare_process(cfg)
    quieten()
    torch.manual_seed(cfg.seed)
    parts = build(cfg, folder)
    if parts.trainer.world_size > 1:
        raise ConfigError(
            f"trainer.devices={cfg.trainer.devices}: trainings take turns on one device only; give trainer.devices=1"
        )
    turns, trainer = turning.Turns(pipe), cast(Any, parts.trainer)
    trainer.callbacks.append(type("Steps", (turning.Steps, Callback), {})(turns))
    trainer.fit(parts.model, datamodule=parts.data)
    turns.ended()


def measure_sides(pipe: Connection, overrides: Sequence[str], folder: Path) -> None:
    """The body of a process: measure a side of a configuration with changes, as it is asked, until nobody asks."""
    with telling(pipe, folder), contextlib.suppress(EOFError):
        import torch

        from strobe.app.build.instantiate import set_up_data
        from strobe.app.config.compose import recomposed
        from strobe.app.config.register import composing
        from strobe.app.run.ceilings import Ceilings
        from strobe.app.run.train import prepare_process, quieten

        quieten()
        with composing(), recomposed(overrides) as cfg:
            prepare_process(cfg)
            torch.manual_seed(cfg.seed)
            ceilings = Ceilings(cfg, set_up_data(cfg), overrides)
            while True:
                pipe.send(ceilings.alternative(*pipe.recv()))


@contextlib.contextmanager
def telling(pipe: Connection, folder: Path) -> Iterator[None]:
    """For the body of a process: what it prints goes into the folder, and an error to who has the pipe."""
    print_into(folder / OUTPUT)
    try:
        yield
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        pipe.send(failure_of(error))


def failure_of(error: BaseException) -> Failure:
    """What is told of the error that ended a training: a user's mistake in its own words, others with their type."""
    from strobe.app.run.train import explained

    known = explained(error) if isinstance(error, Exception) else error
    text = " ".join(str(known).split())
    if isinstance(known, HydraException | StrobeError):
        text = text.partition(" Config search path:")[0]
    else:
        text = f"{type(known).__name__}: {text}".removesuffix(": ")
    return Failure(text, memory=MEMORY.search(text) is not None)
