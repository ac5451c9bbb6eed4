"""A run as a row of TensorBoard's HParams tab: what was chosen, what came of it, and how it ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strobe.overrides import key_of
from strobe.records.run import Record

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


def values(record: Record, learning_rate: float | None = None) -> dict[str, Any]:
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


def summaries(record: Record, learning_rate: float | None = None) -> Iterator[Any]:
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
    for name, value in values(record, learning_rate).items():
        setattr(start.hparams[name], fields[name], value)
    yield _summary(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))

    # The tab knows no interruption, and shows as unknown what neither succeeded nor failed.
    status = api_pb2.Status.Value(_ENDINGS.get(record.text("status") or "", "STATUS_UNKNOWN"))
    yield _summary(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=SessionEndInfo(status=status)))


def _summary(tag: str, content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.metadata import create_summary_metadata

    return Summary(value=[Summary.Value(tag=tag, metadata=create_summary_metadata(content))])
