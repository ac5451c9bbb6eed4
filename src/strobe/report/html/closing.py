"""The end of the page: how to open the traces, the machine, the versions, the run's files."""

import re
import shlex
from collections.abc import Sequence
from urllib.parse import quote

from strobe.records.run import Record
from strobe.records.tables import File
from strobe.report.html.pieces import command, facts, more, section
from strobe.report.html.text import esc, size

MOST = 40  # files or traces in a list
_HASH, _SHORT = re.compile(r"^([0-9a-f]{12})[0-9a-f]{28}"), r"\1"
_TRACES = (".trace.json", ".trace.json.gz")


def traces(record: Record, name: str, files: Sequence[File]) -> str:
    """The traces with links, and the commands that open them."""
    paths = [path for path in record.items("traces") if isinstance(path, str)]
    sizes = {file.path: file.size for file in files}
    paths = list(dict.fromkeys([*paths, *(path for path in sizes if path.endswith(_TRACES))]))
    run = shlex.quote(name or "RUN")
    if not paths:
        used = record.text("choices", "profiler")
        why = f" This run had profiler={esc(used)}." if used and used != "trace" else ""
        return section("traces", "Traces", "", f'<p class="empty">No traces: profiler=trace writes them.{why}</p>')
    links = "".join(f"<li>{_link(path)}{_size(sizes.get(path))}</li>" for path in paths[:MOST])
    body = (
        f"<p>In Perfetto, with no network:</p>{command(f'python -m strobe.view {run} --perfetto')}"
        f"<p>In TensorBoard, with scalars and pictures:</p>{command(f'python -m strobe.view {run} --tensorboard')}"
        f'<ul class="files">{links}</ul>{more(len(paths) - MOST, "traces")}'
    )
    return section("traces", "Traces", "A timeline of some steps: phases, operators, kernels, loader workers.", body)


def environment(record: Record) -> str:
    """The machine and the versions."""
    pairs = []
    for key, words in (("host", "Host"), ("cpu", "Processor"), ("usable_cores", "Usable cores")):
        value = record.mapping("environment").get(key)
        if value is not None:
            pairs.append((words, esc(value)))
    if (threads := record.count("threads")) is not None:
        pairs.append(("Threads of an operator", f"{threads:,}"))
    if whole := record.number("environment", "memory_bytes"):
        pairs.append(("Memory", size(whole)))
    pairs.append(("GPU", esc(record.text("environment", "gpu") or "none")))
    if commit := record.text("environment", "git_commit"):
        pairs.append(("Commit", f"<code>{esc(_HASH.sub(_SHORT, commit))}</code>"))
    if (held := record.number("environment", "page_cache")) is not None:
        pairs.append(("Page cache", f"{held:.0%} of the training files when training began"))
    versions = record.mapping("environment", "versions")
    pairs += [(esc(name), esc(value)) for name, value in versions.items()]
    given = [part for part in record.items("overrides") if isinstance(part, str)]
    body = facts(pairs) + f"<div><h3>This run</h3>{command(shlex.join(['python', 'train.py', *given]))}</div>"
    return section("environment", "Environment", "What the figures depend on besides the code.", body)


def listing(found: Sequence[File]) -> str:
    """The run's other files with links; nothing where they are not known."""
    others = [file for file in found if not file.path.endswith(_TRACES)]
    links = "".join(f"<li>{_link(file.path)}{_size(file.size)}</li>" for file in others[:MOST])
    body = f'<ul class="files">{links}</ul>{more(len(others) - MOST, "files")}' if links else ""
    return section("files", "Files", "Links work where this page lies in the run's directory.", body)


def _link(path: str) -> str:
    """A link below the page's own directory, and nowhere else."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        return f"<span>{esc(path)}</span>"
    return f'<a href="./{esc(quote(path.encode("utf-8", "replace")), 4000)}">{esc(path)}</a>'


def _size(count: int | None) -> str:
    return "" if count is None else f"<small>{size(count)}</small>"
