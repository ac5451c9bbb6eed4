"""The verdict of a run in TensorBoard's own tabs: text, a picture, scalars to compare, and hyperparameters."""

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strobe.report import wording
from strobe.report.step_picture import step_picture

if TYPE_CHECKING:
    from lightning import Trainer

# Columns of the HParams tab. It takes them from one run of a sweep, so they are the same in each, with a value or
# without; and it shows five hyperparameters (by the alphabet) and five metrics at first, the others when ticked.
_HPARAMS = ("batch_size", "num_workers", "precision")
_CHOICES = ("data", "loader", "engine")
_METRICS = ("images_per_second", "efficiency", "ceilings/loader", "ceilings/model", "test/accuracy", "val/accuracy")


def show_verdict(trainer: "Trainer", summary: Mapping[str, Any]) -> None:
    """Show a run's record to TensorBoard's loggers, on rank 0, also after Lightning has closed them.

    ``strobe/verdict`` in the Text tab, ``strobe/step`` in Images; in Scalars and HParams, so that the runs of a sweep
    can be compared, ``images_per_second``, ``efficiency`` and ``ceilings/loader`` and ``ceilings/model``. What the
    record lacks is left out.
    """
    step = trainer.global_step
    for board in _boards(trainer):
        if text := markdown(summary):
            board.add_text("strobe/verdict", text, step)
        if (picture := step_picture(summary)) is not None:
            board.add_image("strobe/step", picture, step, dataformats="HWC")
        for name, value in scalars(summary).items():
            board.add_scalar(name, value, step)
        _add_hparams(board, summary)
        board.close()  # writes what is left; a later addition opens the next file


def markdown(summary: Mapping[str, Any]) -> str:
    """Verdict, ceilings, and each finding with its evidence and the command to copy; empty if there is nothing."""
    verdict, ceilings = summary.get("verdict"), wording.ceilings(summary)
    paragraphs = [f"**{_plain(verdict)}**"] if verdict else []
    paragraphs += [f"Ceilings: {_plain(ceilings)}."] if ceilings else []
    for found in wording.findings(summary):
        title, predicted = wording.heading(summary, found)
        if title:
            paragraphs.append(f"#### {_plain(title)}{predicted and f'. Predicted: {predicted}'}")
        paragraphs.append(_plain(found["evidence"]))
        command = wording.command_of(summary, found)
        paragraphs.append(f"    {command}" if command else _plain(found["advice"]))  # indented: a block of code
    return "\n\n".join(paragraphs)


def scalars(summary: Mapping[str, Any]) -> dict[str, float]:
    """What is worth comparing between runs, as far as it was measured: images/s, and the share of the ceilings."""
    ceilings = summary.get("ceilings") or {}
    values = {
        "images_per_second": (summary.get("images_per_second") or {}).get("median"),
        "efficiency": summary.get("efficiency"),
        "ceilings/loader": ceilings.get("loader"),
        "ceilings/model": ceilings.get("model"),
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def _add_hparams(board: Any, summary: Mapping[str, Any]) -> None:
    """A row of the HParams tab in this run, where ``SummaryWriter.add_hparams`` would make a run of its own."""
    from torch.utils.tensorboard.summary import hparams

    chosen = {name: summary["choices"][name] for name in _CHOICES if name in summary["choices"]}
    chosen |= {name: summary[name] for name in _HPARAMS if summary.get(name) is not None}
    for part in hparams(chosen, dict.fromkeys(_METRICS)):  # type: ignore[no-untyped-call]
        board.file_writer.add_summary(part)


def _boards(trainer: "Trainer") -> Iterator[Any]:
    """The SummaryWriters of the trainer's TensorBoard loggers, on rank 0; other loggers are left alone."""
    from lightning.pytorch.loggers import TensorBoardLogger

    if trainer.is_global_zero:
        yield from (logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger))


def _plain(text: str) -> str:
    """Text of one line in which nothing is markup to Markdown or HTML."""
    line = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{letter}" if letter in r"\`*_[]#" else letter for letter in line)
