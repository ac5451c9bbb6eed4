"""The verdict of a run in TensorBoard's own tabs: text, a picture, scalars to compare, and hyperparameters."""

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strobe.callbacks.figures import pixels
from strobe.overrides import key_of
from strobe.records.run import Record
from strobe.report import wording
from strobe.report.step_picture import step_picture

if TYPE_CHECKING:
    from lightning import Trainer

# The tab shows the first five at first, and the others when they are ticked.
METRICS = (
    "overall_images_per_second",
    "efficiency",
    "memory/rss_peak_mb",
    "test/accuracy",
    "val/accuracy",
    "images_per_second",
    "ceilings/loader",
    "ceilings/model",
    "memory/device_peak_mb",
)
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "bool": bool}
_ENDINGS = {"completed": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}
# Hyperparameters: type, where it is known from (configuration by the first key), and the keys that decide it. The tab
# takes its columns from one run of a sweep, so they are the same in each, with a value or without.
COLUMNS = {
    **{group: ("string", "choices", (group,)) for group in ("data", "loader", "engine", "model", "profiler")},
    "batch_size": ("number", "summary", ("data.batch_size",)),
    "num_workers": ("number", "summary", ("engine.num_workers",)),
    "prefetch_factor": ("number", "config", ("engine.prefetch_factor",)),
    "pin_memory": ("bool", "config", ("engine.pin_memory",)),
    "precision": ("string", "summary", ("trainer.precision",)),
    "accelerator": ("string", "summary", ("trainer.accelerator", "trainer")),
    "devices": ("number", "summary", ("trainer.devices",)),
    "threads": ("number", "summary", ("threads",)),
    "learning_rate": ("number", "config", ("model.lr", "model.lr_scaling")),
    "optimizer": ("string", "config", ("model.optimizer",)),
    "fused": ("bool", "config", ("model.fused",)),
    "channels_last": ("bool", "config", ("model.channels_last",)),
    "compile": ("bool", "config", ("model.compile",)),
    "stem": ("string", "config", ("model.stem",)),
    "seed": ("number", "config", ("seed",)),
}


def show_verdict(trainer: "Trainer", summary: dict[str, Any], config: dict[str, Any] | None = None) -> None:
    """Show a run's record to TensorBoard's loggers, on rank 0, also after Lightning has closed them.

    ``strobe/verdict`` in the Text tab, ``strobe/step`` in Images; in Scalars the figures that ``scalars`` names; and in
    HParams, so that the runs of a sweep can be compared, these, accuracies, and what was chosen. What is not known is
    left out.
    """
    from lightning.pytorch.loggers import TensorBoardLogger

    record, step = Record(summary, config or {}), trainer.global_step
    loggers = trainer.loggers if trainer.is_global_zero else []
    for board in [logger.experiment for logger in loggers if isinstance(logger, TensorBoardLogger)]:
        if text := markdown(record):
            board.add_text("strobe/verdict", text, step)
        if (picture := step_picture(summary)) is not None:
            board.add_image("strobe/step", pixels(picture), step, dataformats="HWC")
        for name, value in scalars(record).items():
            board.add_scalar(name, value, step)
        # The first optimizer's rate at the start, before a schedule changed it.
        rate = next((float(one.defaults["lr"]) for one in trainer.optimizers if "lr" in one.defaults), None)
        for part in hparams(record, rate):
            board.file_writer.add_summary(part)
        board.close()  # writes what is left; a later addition opens the next file


def markdown(record: Record) -> str:
    """Verdict, ceilings, and each finding with its evidence and the command to copy; empty if there is nothing."""
    verdict, ceilings = record.text("verdict"), wording.ceilings(record)
    paragraphs = [f"**{_plain(verdict)}**"] if verdict else []
    paragraphs += [f"Ceilings: {_plain(ceilings)}."] if ceilings else []
    for found in wording.advice(record):
        if found.title:
            paragraphs.append(f"#### {_plain(found.title)}{found.predicted and f'. Predicted: {found.predicted}'}")
        command = found.command and f"    {found.command}"  # indented: a block of code
        paragraphs += [_plain(found.evidence), command or _plain(found.advice)]
    return "\n\n".join(paragraphs)


def scalars(record: Record) -> dict[str, float]:
    """What is worth comparing between runs, as far as it was measured: images/s, ceilings and the share of them, MB."""
    values = {
        "images_per_second": record.number("images_per_second", "median"),
        "overall_images_per_second": record.number("overall_images_per_second"),
        "efficiency": record.number("efficiency"),
        **{f"ceilings/{name}": record.number("ceilings", name) for name in ("loader", "model")},
    }
    for name in ("rss_peak", "device_peak"):
        held = record.number("memory", f"{name}_bytes")
        values[f"memory/{name}_mb"] = held and held / 1e6
    return {name: value for name, value in values.items() if value is not None}


def _plain(text: str) -> str:
    """Text of one line in which nothing is markup to Markdown or HTML."""
    line = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{letter}" if letter in r"\`*_[]#" else letter for letter in line)


def hyperparameters(record: Record, learning_rate: float | None = None) -> dict[str, Any]:
    """The run's hyperparameters by name; what is unknown, or left to torch, is left out.

    ``learning_rate``: the optimizer's, which ``model.lr_scaling`` may have changed; None: ``model.lr``.
    """
    found = {}
    for name, (kind, place, keys) in COLUMNS.items():
        known = {"summary": record.summary, "choices": record.mapping("choices")}
        value = record.setting(keys[0]) if place == "config" else known[place].get(name)
        if name == "learning_rate" and learning_rate is not None:
            value = learning_rate
        if isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "bool"):
            found[name] = value
    return found


def hparams(record: Record, learning_rate: float | None = None) -> Iterator[Any]:
    """What an event file holds for the tab, where ``SummaryWriter.add_hparams`` would make a run of its own.

    Hyperparameters that the command line gave come first in the tab: in a sweep these are those that differ.
    """
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    given = {key_of(str(override)) for override in record.items("overrides")}
    columns = []
    for name, (kind, _, keys) in COLUMNS.items():
        kind_in_tab = api_pb2.DataType.Value("DATA_TYPE_FLOAT64" if kind == "number" else f"DATA_TYPE_{kind.upper()}")
        columns.append(api_pb2.HParamInfo(name=name, type=kind_in_tab, differs=not given.isdisjoint(keys)))
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in METRICS]
    experiment = api_pb2.Experiment(hparam_infos=columns, metric_infos=metrics)
    yield _summary(metadata.EXPERIMENT_TAG, HParamsPluginData(experiment=experiment))

    start = SessionStartInfo()
    for name, value in hyperparameters(record, learning_rate).items():
        setattr(start.hparams[name], f"{COLUMNS[name][0]}_value", value)
    yield _summary(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))

    # The tab knows no interruption, and shows as unknown what neither succeeded nor failed.
    status = api_pb2.Status.Value(_ENDINGS.get(record.text("status") or "", "STATUS_UNKNOWN"))
    yield _summary(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=SessionEndInfo(status=status)))


def _summary(tag: str, content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.metadata import create_summary_metadata

    return Summary(value=[Summary.Value(tag=tag, metadata=create_summary_metadata(content))])
