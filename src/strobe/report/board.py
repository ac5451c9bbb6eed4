"""The verdict of a run in TensorBoard's own tabs: text, a picture, scalars to compare, and hyperparameters."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
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
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "float64": (int, float), "bool": bool}
_ENDINGS = {"completed": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}


@dataclass(frozen=True)
class Column:
    """A hyperparameter: its name, its type in the tab, where it is known from, and the keys that decide it."""

    name: str
    kind: str  # string | float64 | bool
    place: str  # choices | summary | config: by the first key
    keys: tuple[str, ...]


# The tab takes its columns from one run of a sweep, so they are the same in each, with a value or without.
COLUMNS = (
    *(Column(group, "string", "choices", (group,)) for group in ("data", "loader", "engine", "model", "profiler")),
    Column("batch_size", "float64", "summary", ("data.batch_size",)),
    Column("num_workers", "float64", "summary", ("engine.num_workers",)),
    Column("prefetch_factor", "float64", "config", ("engine.prefetch_factor",)),
    Column("pin_memory", "bool", "config", ("engine.pin_memory",)),
    Column("precision", "string", "summary", ("trainer.precision",)),
    Column("accelerator", "string", "summary", ("trainer.accelerator", "trainer")),
    Column("devices", "float64", "summary", ("trainer.devices",)),
    Column("threads", "float64", "summary", ("threads",)),
    Column("learning_rate", "float64", "config", ("model.lr", "model.lr_scaling")),
    Column("optimizer", "string", "config", ("model.optimizer",)),
    Column("fused", "bool", "config", ("model.fused",)),
    Column("channels_last", "bool", "config", ("model.channels_last",)),
    Column("compile", "bool", "config", ("model.compile",)),
    Column("stem", "string", "config", ("model.stem",)),
    Column("seed", "float64", "config", ("seed",)),
)


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
        "ceilings/loader": record.number("ceilings", "loader"),
        "ceilings/model": record.number("ceilings", "model"),
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

    Args:
        record: The run's record.
        learning_rate: The optimizer's, which ``model.lr_scaling`` may have changed; None: ``model.lr``.
    """
    found = {}
    for column in COLUMNS:
        if column.place == "config":
            value = record.setting(column.keys[0])
        else:
            value = (record.summary if column.place == "summary" else record.mapping("choices")).get(column.name)
        if column.name == "learning_rate" and learning_rate is not None:
            value = learning_rate
        if isinstance(value, _TYPES[column.kind]) and isinstance(value, bool) == (column.kind == "bool"):
            found[column.name] = value
    return found


def hparams(record: Record, learning_rate: float | None = None) -> Iterator[Any]:
    """What an event file holds for the tab, where ``SummaryWriter.add_hparams`` would make a run of its own.

    Hyperparameters that the command line gave come first in the tab: in a sweep these are those that differ.
    """
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    given = {key_of(str(override)) for override in record.items("overrides")}
    columns = [
        api_pb2.HParamInfo(
            name=column.name,
            type=api_pb2.DataType.Value(f"DATA_TYPE_{column.kind.upper()}"),
            differs=not given.isdisjoint(column.keys),
        )
        for column in COLUMNS
    ]
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in METRICS]
    experiment = api_pb2.Experiment(hparam_infos=columns, metric_infos=metrics)
    yield _summary(metadata.EXPERIMENT_TAG, HParamsPluginData(experiment=experiment))

    start = SessionStartInfo()
    fields = {column.name: f"{'number' if column.kind == 'float64' else column.kind}_value" for column in COLUMNS}
    for name, value in hyperparameters(record, learning_rate).items():
        setattr(start.hparams[name], fields[name], value)
    yield _summary(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))

    # The tab knows no interruption, and shows as unknown what neither succeeded nor failed.
    status = api_pb2.Status.Value(_ENDINGS.get(record.text("status") or "", "STATUS_UNKNOWN"))
    yield _summary(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=SessionEndInfo(status=status)))


def _summary(tag: str, content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.metadata import create_summary_metadata

    return Summary(value=[Summary.Value(tag=tag, metadata=create_summary_metadata(content))])
