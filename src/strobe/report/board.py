"""A run's verdict in TensorBoard's own tabs: a text, a picture, and hyperparameters to compare runs by."""

import html
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.callbacks.figures import EMPTY, FAINT, INK, PAPER, PHASE_COLOURS, Sheet, pixels
from strobe.overrides import key_of
from strobe.present.charts.scale import axis_of_rates
from strobe.present.format import cut, duration, percent, rate
from strobe.present.raster import ink_on
from strobe.records.run import Record, rate_of
from strobe.report import wording
from strobe.report.trace_page import first_trace, told
from strobe.report.trace_parts import CSS
from strobe.traces.compared import mean_of
from strobe.traces.operators import kernels, operators
from strobe.traces.rank import RankTrace, Read, read_trace

if TYPE_CHECKING:
    from lightning import Trainer
    from matplotlib.figure import Figure

METRICS = ("val/accuracy",)  # of the HParams tab: curves that Lightning logs
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "bool": bool}
_ENDINGS = {"completed": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}
# What came of a run stands among its hyperparameters: as a metric it would be a chart of one dot in Scalars.
RESULTS = ("test accuracy", "images/s", "share of the ceiling", "loader alone", "model alone", "memory, MB", "GPU, MB")
# Hyperparameters: type, where it is known from (configuration by the first key), and the keys that decide it. The tab
# takes its columns from one run of a sweep, so they are the same in each, with a value or without.
COLUMNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **dict.fromkeys(RESULTS, ("number", "results", ())),
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
    "model_name": ("string", "config", ("model.name",)),
    "stem": ("string", "config", ("model.stem",)),
    "seed": ("number", "config", ("seed",)),
}
_ROWS = 10  # of a table of a trace
_IDLE = {"synchronisation": "#6B8E00", "launch": "#6A35D9"}  # as the page of a trace has them
_WIDE = 88  # characters of a line of code
_CEILING_COLOURS = {
    "storage": PHASE_COLOURS["transfer"],
    "loader": PHASE_COLOURS["data_wait"],
    "model": PHASE_COLOURS["forward"],
    "joint": "#B8B8B8",
}


def show_verdict(
    trainer: "Trainer",
    summary: dict[str, Any],
    config: dict[str, Any] | None = None,
    run_dir: Path | None = None,
    read: Read = read_trace,
) -> None:
    """Write a run's record to TensorBoard's loggers, on rank 0, even after Lightning has closed them.

    ``strobe/verdict`` in the Text tab, ``strobe/step`` in Images; and in HParams, so that the runs of a sweep can be
    compared, what was chosen and what came of it. What is not known is left out. ``trace/newest`` in Text and Images is
    what the newest trace in ``run_dir`` shows.
    """
    from lightning.pytorch.loggers import TensorBoardLogger

    record, step = Record(summary, config or {}), trainer.global_step
    loggers = trainer.loggers if trainer.is_global_zero else []
    traced = first_trace(run_dir, record, read) if run_dir and loggers else None
    for board in [logger.experiment for logger in loggers if isinstance(logger, TensorBoardLogger)]:
        if text := markdown(record):
            board.add_text("strobe/verdict", text, step)
        if (picture := step_picture(summary)) is not None:
            board.add_image("strobe/step", pixels(picture), step, dataformats="HWC")
        if traced is not None:
            board.add_text("trace/newest", trace_text(traced), step)
            board.add_image("trace/newest", pixels(trace_picture(traced)), step, dataformats="HWC")
        # The first optimizer's rate at the start, before a schedule changed it.
        learning_rate = next((float(one.defaults["lr"]) for one in trainer.optimizers if "lr" in one.defaults), None)
        for part in hparams(record, learning_rate):
            board.file_writer.add_summary(part)
        board.close()  # writes what is left; a later addition opens the next file


def markdown(record: Record) -> str:
    """Verdict, rate, ceilings, and each finding with its evidence and command to copy; empty if there is nothing."""
    (first, rest), ceilings, trust = wording.verdict(record), wording.ceilings(record), wording.trust(record)[1]
    paragraphs = [f"**{_plain(first)}**{rest and f' {_plain(rest)}'}"] if first else []
    paragraphs += [_plain(trust)] if trust else []
    if overall := rate_of(record):
        paragraphs.append(f"Images/s: {rate(overall)}.")
    paragraphs += [f"Ceilings: {_plain(ceilings)}."] if ceilings else []
    for finding in wording.advice(record):
        if finding["title"]:
            predicted = finding["predicted"] and f". Predicted: {_plain(finding['predicted'])}"
            paragraphs.append(f"#### {_plain(finding['title'])}{predicted}")
        paragraphs += [_plain(finding["evidence"]), _block(finding["command"]) or _plain(finding["advice"])]
        paragraphs += [_plain(remedy) for remedy in finding["remedies"]]
    return "\n\n".join(filter(None, paragraphs))


def trace_text(rank: RankTrace) -> str:
    """What the page of a trace says first, and its tables' first rows, as Markdown."""
    (first, rest), length = told(rank), mean_of(rank.lengths) or 1.0
    paragraphs = [f"**{_plain(first)}** {_plain(rest)}", "The page of it is traces.html in the run's directory."]
    used = [(name, duration(mean_of(times)), percent(mean_of(times) / length)) for name, times in rank.uses.items()]
    called = [
        (row.name, f"{row.calls:,}", duration(row.own / 1e6), duration(row.total / 1e6))
        for row in operators([rank])[:_ROWS]
    ]
    ran = [(row.name, f"{row.calls:,}", duration(row.total / 1e6)) for row in kernels([rank])[:_ROWS]]
    tables: tuple[tuple[tuple[str, ...], Sequence[tuple[str, ...]]], ...] = (
        (("Of a step", "Time", "Share"), used),
        (("Operator", "Calls", "Own", "Total"), called),
        (("Kernel", "Calls", "Total"), ran),
    )
    for heads, rows in tables:
        lines = [heads, ("---",) * len(heads), *(tuple(_plain(cut(cell, 60)) for cell in row) for row in rows)]
        paragraphs += ["\n".join(f"| {' | '.join(line)} |" for line in lines)] if rows else []
    return "\n\n".join(paragraphs)


def trace_picture(rank: RankTrace) -> "Figure":
    """What a mean step of a trace is used for, as a bar."""
    page, total = Sheet(), mean_of(rank.lengths) or 1.0
    page.line(f"In the trace, where recording made it slower: {duration(total)} a step", 22, FAINT)
    page.line(told(rank)[0], 22)
    uses = {name: mean_of(values) for name, values in rank.uses.items() if values.any()}
    _draw_step(page, uses, total, {name: PHASE_COLOURS.get(CSS[name], _IDLE.get(name, "#B8B8B8")) for name in uses})
    return page.figure


def results(record: Record) -> dict[str, float | None]:
    """What is worth comparing between runs, by its name in ``RESULTS``."""
    tested = record.number("metrics", "test/accuracy")
    values = [tested, rate_of(record), wording.share_of_ceiling(record)]
    values += [record.number("ceilings", name) for name in ("loader", "model")]
    held = (record.number("memory", f"{name}_bytes") for name in ("rss_peak", "device_peak"))
    return dict(zip(RESULTS, [*values, *(value and value / 1e6 for value in held)], strict=True))


def _block(command: str) -> str:
    """A command as a block of code, in lines that fit: TensorBoard wraps none, and makes the text around it as wide."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1].strip() and len(lines[-1]) + len(word) > _WIDE:
            lines.append("  ")
        lines[-1] += f"{word} "
    return " \\\n".join(f"    {line.rstrip()}" for line in lines) if command else ""


def _plain(text: str) -> str:
    """One line of text, escaped for Markdown and HTML."""
    line = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{letter}" if letter in r"\`*_[]#" else letter for letter in line)


def hyperparameters(record: Record, learning_rate: float | None = None) -> dict[str, Any]:
    """The run's hyperparameters and results by name; what is unknown, or left to torch, is left out.

    ``learning_rate``: the optimizer's, which ``model.lr_scaling`` may have changed; None: ``model.lr``.
    """
    values = {}
    for name, (kind, place, keys) in COLUMNS.items():
        known = {"summary": record.summary, "choices": record.mapping("choices"), "results": results(record)}
        value = record.setting(keys[0]) if place == "config" else known[place].get(name)
        if name == "learning_rate" and learning_rate is not None:
            value = learning_rate
        if isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "bool"):
            values[name] = value
    return values


def hparams(record: Record, learning_rate: float | None = None) -> Iterator[Any]:
    """The event-file entries for the tab; ``SummaryWriter.add_hparams`` would make a run of its own.

    Results, and hyperparameters that the command line gave, come first in the tab: in a sweep these differ.
    """
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    given = {key_of(str(override)) for override in record.items("overrides")}
    columns = []
    for name, (kind, _, keys) in COLUMNS.items():
        kind_in_tab = api_pb2.DataType.Value("DATA_TYPE_FLOAT64" if kind == "number" else f"DATA_TYPE_{kind.upper()}")
        columns.append(api_pb2.HParamInfo(name=name, type=kind_in_tab, differs=not (keys and given.isdisjoint(keys))))
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


def step_picture(summary: Mapping[str, Any]) -> "Figure | None":
    """A record's step as a stacked bar of its phases, and below it ceilings and measured rate; None without any."""
    seconds = {name: value for name, value in (summary.get("step_seconds") or {}).items() if value}
    record = Record(dict(summary))
    measured = rate_of(record)
    rates = {name: value for name, value in wording.all_rates(record).items() if name != "transfer"}
    total = seconds.pop("total", None)
    if not total and not rates:
        return None
    page = Sheet()
    page.line(", ".join(wording.subject(record)), 22, FAINT)
    if total:
        pace = f", {rate(measured)} images/s" if measured and not rates else ""
        page.line(f"Mean step: {duration(total)}{pace}", 28)
        _draw_step(page, seconds, total)
    if rates:
        known = wording.share_of_ceiling(record) is not None
        _draw_rates(page, rates, measured, (summary.get("ceilings") or {}).get("intervals") or {}, shares=known)
    return page.figure


def _draw_step(
    page: Sheet, seconds: Mapping[str, float], total: float, colours: Mapping[str, str] = PHASE_COLOURS
) -> None:
    """The bar; a phase that is too narrow for its name stands in the line below."""
    axes, whole = page.axes(80), max(total, sum(seconds.values()))
    axes.set(xlim=(0, whole), ylim=(0, 1))
    axes.set_axis_off()
    axes.barh(0.5, whole, 1, color=EMPTY)
    start, outside = 0.0, []
    for name in sorted(seconds, key=lambda name: [*colours, name].index(name)):
        colour, label = colours.get(name, PHASE_COLOURS["other"]), name.replace("_", " ")
        amount = f"{duration(seconds[name])}, {percent(seconds[name] / total)}"
        axes.barh(0.5, seconds[name], 1, left=start, color=colour, edgecolor=PAPER)
        if 1150 * seconds[name] / whole >= max(13 * len(label), 11 * len(amount)) + 16:
            ink, middle = ink_on(colour), start + seconds[name] / 2
            axes.text(middle, 0.66, label, fontsize=22, color=ink, ha="center", va="center")
            axes.text(middle, 0.28, amount, fontsize=18, color=ink, ha="center", va="center")
        else:
            outside.append((f"{label} {amount}", colour))
        start += seconds[name]
    if outside:
        page.key(outside)


def _draw_rates(
    page: Sheet, rates: Mapping[str, float], measured: float | None, intervals: Mapping[str, Any], *, shares: bool
) -> None:
    """A bar for each ceiling, with its interval, and one for the measured rate, all on one scale, as on the page.

    ``shares``: whether to print each share of a ceiling; False where a ceiling is wrong or too uncertain.
    """
    names = {name: "both, at most" if name == "joint" else f"{name} alone" for name in rates}
    bars = [(names[name], value, _CEILING_COLOURS[name], intervals.get(name)) for name, value in rates.items()]
    if measured:
        bars.append(("this run", measured, INK, None))
    scale, used = axis_of_rates([value for _, value, *_ in bars]), measured or 0.0
    page.line(f"Images per second{', logarithmic scale' * scale.logarithmic}", 28)
    told = [f" ({percent(min(1.0, used / value))} used)" * bool(used and shares) for value in rates.values()]
    texts = [(bar[0], rate(bar[1]) + share) for bar, share in zip(bars, [*told, ""], strict=False)]
    axes = page.rows(46, scale.end, texts, right=190)
    if scale.logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(scale.start, scale.end)
        axes.set_xticks(marks := scale.marks(), [f"{mark:,g}" for mark in marks])
        axes.minorticks_off()
    for row, (_, value, colour, interval) in enumerate(bars):
        axes.barh(row, value - scale.start, 0.6, left=scale.start, color=colour)
        if interval:  # in ink with a light edge, which shows on dark bars too
            ends = [max(scale.start, end) for end in interval]
            for ink, width in ((PAPER, 5), (INK, 2)):
                axes.plot(
                    ends, [row, row], color=ink, linewidth=width, marker="|", markersize=14, markeredgewidth=width
                )
    if measured:
        axes.axvline(measured, color=INK, linewidth=2, linestyle=":")
