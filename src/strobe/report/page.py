"""``report.html``: one self-contained file about a run, from its records alone. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path, PurePath

from strobe.diagnose.rank import ceiling_rates
from strobe.present import parts as kit
from strobe.present.format import counted, cut, duration, figure, here, percent
from strobe.present.page import render as rendered
from strobe.present.page import write_whole
from strobe.records.run import Record, load_record, rate_of
from strobe.records.step_table import NO_STEPS, StepTable
from strobe.records.tables import File, Operators, files_of, operators_of, steps_of
from strobe.report import wording
from strobe.report.cards import findings
from strobe.report.evidence import memory, metrics, operators, trace
from strobe.report.footer import environment, listing, traces
from strobe.report.ranks import ranks
from strobe.report.steps import attribution, ceilings, lowest_ceiling, step
from strobe.report.throughput import throughput
from strobe.report.trace_page import write_run_page
from strobe.traces.rank import Read, read_trace

NAME = "report.html"
STATUS = {"completed": "good", "interrupted": "fair", "failed": "bad"}
LONGEST_HEADLINE, LONGEST_ERROR = 240, 6000  # characters; a longer first sentence is set as text


def write_report(run_dir: Path, record: Record | None = None, read: Read = read_trace) -> Path:
    """Write ``report.html`` into a run's directory, whole or not at all, and return its path.

    ``record``: what to show instead of the run's own record, such as one with new findings. ``read`` reads traces.

    Raises:
        DataError: The directory holds no record, or one that is damaged or of another program or version.
        OSError: The file cannot be written.
    """
    record = record or load_record(run_dir)
    write_run_page(run_dir, record, read)
    name, files = here(run_dir.absolute()), files_of(run_dir)
    text = render(record, steps_of(run_dir), operators_of(run_dir), name=name, files=files)
    return write_whole(run_dir / NAME, text)


def render(
    record: Record,
    rows: StepTable = NO_STEPS,
    slowest: Operators | None = None,
    *,
    name: str = "",
    files: Sequence[File] = (),
) -> str:
    """The page as HTML; a pure function, which leaves out whatever the record lacks.

    ``name`` is the run's directory, for commands to copy; ``rows`` are its steps.
    """
    sections = [
        findings(record),
        step(record),
        attribution(record),
        ranks(record),
        ceilings(record),
        throughput(record, rows),
        operators(slowest),
        trace(record),
        memory(record),
        metrics(record),
        traces(record, name, files),
        environment(record),
        listing(files),
    ]
    first, rest = _told(record)
    status = record.text("status") or "unknown"
    page = kit.Page(
        ": ".join(filter(None, (PurePath(name).name, first))),  # in a row of tabs the run comes first
        wording.subject(record),
        first,
        _head(record, first, rest, name),
        sections,
        "this run's records; strobe report makes it again.",
        [(STATUS.get(status, "fair"), status)],
        long=len(first) > LONGEST_HEADLINE,
    )
    return rendered(page)


def _head(record: Record, first: str, rest: str, name: str) -> list[kit.Part]:
    """What is said below the headline: what went wrong, how far to trust the run, the main figures."""
    status, kind = record.text("status") or "unknown", record.text("error", "type") or ""
    message, (level, trusted) = (record.text("error", "message") or "").strip(), wording.trust(record)
    parts: list[kit.Part] = [kit.Paragraph(rest, "lede")] if rest else []
    if (kind or message) and not first.endswith(message or kind):
        title = "What stopped it" if status == "interrupted" else "What went wrong"
        named = "" if message and wording.is_told(record) else kind
        said = [kit.Pre(cut(message, LONGEST_ERROR))] if message else []
        parts += kit.notice(STATUS.get(status, "fair"), kit.Paragraph([kit.Text(title, "b"), named]), *said)
    parts += [kit.Paragraph(trusted, f"trust {level}")] if trusted else []
    return [*parts, *kit.tiles(_tiles(record)), kit.Paragraph(name, "run-name")]


def _told(record: Record) -> tuple[str, str]:
    """The headline, and what follows it: of a failed run its error; the longest phase where there is no verdict."""
    first, rest = (text.replace(" -> ", " → ") for text in wording.verdict(record))
    if record.text("status") == "failed" and (why := wording.reason(record)):
        _, _, until = first.partition("; until then: ")
        bare = "" if record.text("error", "message") else "The run failed: "
        return cut(f"{bare}{why}", LONGEST_HEADLINE), until and f"Until then: {until} {rest}"
    if first:
        return first, rest
    shares = {name: value for name in record.mapping("step_seconds") if (value := record.number("step_seconds", name))}
    total = shares.pop("total", None)
    if not total or total < 0 or not shares:
        return "No step was measured.", "All steps were warm-up or profiled, or there were none."
    longest = max(shares, key=lambda name: shares[name])
    first = f"The longest phase of a step is {longest.replace('_', ' ')}: {percent(shares[longest] / total)} of it."
    return first, "This record holds no verdict."


def _tiles(record: Record) -> list[kit.Tile]:
    """Images/s, the share of the ceiling, the step, the share of waiting; nothing where no step was measured."""
    tiles = []
    if rate := rate_of(record):
        tiles.append(kit.Tile("Training", figure(rate), wording.unit_of(record), wording.rate_counts(record)))
        share = wording.share_of_ceiling(record)
        why = lowest_ceiling(record) if share is not None else "not known: see Ceilings"
        if ceiling_rates(record):
            tiles.append(kit.Tile("Share of the ceiling", "-" if share is None else percent(share), "", why))
    total = record.number("step_seconds", "total")
    if total is not None and total > 0:
        much, _, unit = duration(total).partition(" ")
        steps = f"of {counted(count, 'step')}" if (count := record.count("steps", "measured")) else ""
        tiles.append(kit.Tile("Mean step", much, unit, steps))
        if (wait := record.number("step_seconds", "data_wait")) is not None:
            tiles.append(kit.Tile("Waiting for data", percent(wait / total), "", f"{duration(wait)} of each step"))
    return tiles
