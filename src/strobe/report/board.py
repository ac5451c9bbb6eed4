"""The verdict of a run in TensorBoard's own tabs: text, a picture, scalars to compare, and hyperparameters."""

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strobe.callbacks.figures import pixels
from strobe.records.run import Record
from strobe.report import hparams, wording
from strobe.report.step_picture import step_picture

if TYPE_CHECKING:
    from lightning import Trainer


def show_verdict(trainer: "Trainer", summary: dict[str, Any], config: dict[str, Any] | None = None) -> None:
    """Show a run's record to TensorBoard's loggers, on rank 0, also after Lightning has closed them.

    ``strobe/verdict`` in the Text tab, ``strobe/step`` in Images; in Scalars the figures that ``scalars`` names; and in
    HParams, so that the runs of a sweep can be compared, these, accuracies, and what was chosen. What is not known is
    left out.
    """
    record, step = Record(summary, config or {}), trainer.global_step
    for board in _boards(trainer):
        if text := markdown(summary):
            board.add_text("strobe/verdict", text, step)
        if (picture := step_picture(summary)) is not None:
            board.add_image("strobe/step", pixels(picture), step, dataformats="HWC")
        for name, value in scalars(summary).items():
            board.add_scalar(name, value, step)
        for part in hparams.summaries(record, _learning_rate(trainer)):
            board.file_writer.add_summary(part)
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
    """What is worth comparing between runs, as far as it was measured: images/s, ceilings and the share of them, MB."""
    ceilings, memory = summary.get("ceilings") or {}, summary.get("memory") or {}
    values = {
        "images_per_second": (summary.get("images_per_second") or {}).get("median"),
        "overall_images_per_second": summary.get("overall_images_per_second"),
        "efficiency": summary.get("efficiency"),
        "ceilings/loader": ceilings.get("loader"),
        "ceilings/model": ceilings.get("model"),
    }
    for name in ("rss_peak", "device_peak"):
        held = memory.get(f"{name}_bytes")
        values[f"memory/{name}_mb"] = held and held / 1e6
    return {name: float(value) for name, value in values.items() if value is not None}


def _learning_rate(trainer: "Trainer") -> float | None:
    """The first optimizer's at the start, before a schedule changed it."""
    return next((float(one.defaults["lr"]) for one in trainer.optimizers if "lr" in one.defaults), None)


def _boards(trainer: "Trainer") -> Iterator[Any]:
    """The SummaryWriters of the trainer's TensorBoard loggers, on rank 0; other loggers are left alone."""
    from lightning.pytorch.loggers import TensorBoardLogger

    if trainer.is_global_zero:
        yield from (logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger))


def _plain(text: str) -> str:
    """Text of one line in which nothing is markup to Markdown or HTML."""
    line = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{letter}" if letter in r"\`*_[]#" else letter for letter in line)
