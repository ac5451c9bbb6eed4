"""What a profile found, in TensorBoard's own tabs: they need no network, unlike the profiler plugin's Overview."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightning import Trainer

from .figures import pixels
from .ranges import Interval, Step
from .tables import OperatorTables


def show_schedule(trainer: Trainer, text: str) -> None:
    """Show `text` (Markdown) as `profiler/schedule` in the Text tab."""
    for board in _boards(trainer):
        board.add_text("profiler/schedule", text, trainer.global_step)
        board.flush()  # a run that is killed leaves what it showed


def show_operators(trainer: Trainer, operators: OperatorTables) -> None:
    """Show the top operators as `profiler/operators` in the Text tab."""
    for board in _boards(trainer):
        board.add_text("profiler/operators", operators.markdown(), trainer.global_step)
        board.flush()


def show_timeline(
    trainer: Trainer, steps: Sequence[Step], workers: Mapping[str, Sequence[Interval]] | None = None
) -> None:
    """Show a picture of recorded steps, see `strobe.callbacks.timeline`, as `profiler/timeline` in the Images tab."""
    for board in _boards(trainer):
        from .timeline import draw

        board.add_image("profiler/timeline", pixels(draw(steps, workers)), trainer.global_step, dataformats="HWC")
        board.flush()


def step_scalars(trainer: Trainer, seconds: Mapping[str, float], step: int) -> None:
    """Log the seconds of a step's phases, and of all together, as `step_seconds/<phase>` to every logger."""
    total = sum(seconds.values())
    metrics = {f"step_seconds/{name}": value for name, value in seconds.items()} | {"step_seconds/total": total}
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=step)


def _boards(trainer: Trainer) -> Iterator[Any]:
    """The SummaryWriters of the trainer's TensorBoard loggers, on rank 0; other loggers are left alone."""
    from lightning.pytorch.loggers import TensorBoardLogger

    if trainer.is_global_zero:
        yield from (logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger))
