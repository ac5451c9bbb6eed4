"""The end of the page: how to open the traces, the machine, the versions, the run's files."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strobe.present.format import size
from strobe.present.page import OFFLINE
from strobe.present.parts import Command, Files, Paragraph, Part, Section, Text, Words, facts, link, more
from strobe.records.run import Record, as_number
from strobe.records.tables import File

TRACES = "traces.html"  # the page of a run's newest traces
MOST = 40  # files or traces in a list
_HASH, _SHORT = re.compile(r"^([0-9a-f]{12})[0-9a-f]{28}"), r"\1"
_TRACES = (".trace.json", ".trace.json.gz")
_MACHINE = (("host", "Host"), ("cpu", "Processor"), ("usable_cores", "Usable cores"))


def traces(record: Record, name: str, files: Sequence[File]) -> Section:
    """The traces with links, and the commands that open them; empty where there are none."""
    paths = [path for path in record.items("traces") if isinstance(path, str)]
    sizes = {file.path: file.size for file in files}
    paths = list(dict.fromkeys([*paths, *(path for path in sizes if path.endswith(_TRACES))]))
    if not paths:
        return Section("traces", "Traces", "", [])
    run = shlex.quote(name or "RUN")
    page: Part = Command(f"strobe view {run} --out traces.html")
    if TRACES in sizes:
        page = Paragraph(link(TRACES, "Steps, idle time and why, operators, flame graph and memory, on one page"))
    parts: list[Part] = [
        page,
        Paragraph("In Perfetto, which works offline:"),
        Command(f"strobe view {run} --perfetto"),
        Paragraph(f"In TensorBoard, with scalars and pictures. {OFFLINE}"),
        Command(f"strobe view {run} --tensorboard"),
        Files([_link(path, sizes.get(path)) for path in paths[:MOST]]),
        *more(len(paths) - MOST, "traces"),
    ]
    return Section("traces", "Traces", "A timeline of some steps: phases, operators, kernels, loader workers.", parts)


def environment(record: Record) -> Section:
    """The machine and the versions."""
    pairs = machine(record.mapping("environment"), [record.text("environment", "gpu") or "none"])
    if (threads := record.count("threads")) is not None:
        pairs.insert(sum(name in dict(pairs) for _, name in _MACHINE), ("Threads of an operator", f"{threads:,}"))
    if (held := record.number("environment", "page_cache")) is not None:
        pairs.append(("Page cache", f"{held:.0%} of the training files when training began"))
    given = [part for part in record.items("overrides") if isinstance(part, str)]
    parts = [
        *facts([*pairs, *versions(record.mapping("environment"))]),
        Command(record.text("script") or shlex.join(["python", "train.py", *given]), "This run"),
    ]
    return Section("environment", "Environment", "What the figures depend on besides the code.", parts)


def machine(environment: Mapping[str, Any], gpus: Iterable[str]) -> list[tuple[str, Words]]:
    """What a page tells of the machine and the commit that measured."""
    pairs: list[tuple[str, Words]] = [
        (name, str(environment[key])) for key, name in _MACHINE if environment.get(key) is not None
    ]
    if whole := as_number(environment.get("memory_bytes")):
        pairs.append(("Memory", size(whole)))
    pairs += [("GPU", gpu) for gpu in gpus]
    if isinstance(commit := environment.get("git_commit"), str) and commit:
        pairs.append(("Commit", Text(_HASH.sub(_SHORT, commit), "code")))
    return pairs


def versions(environment: Mapping[str, Any]) -> list[tuple[str, Words]]:
    """The libraries' versions, as far as they are known."""
    found = environment.get("versions")
    return [(str(name), str(value)) for name, value in found.items() if value] if isinstance(found, Mapping) else []


def listing(found: Sequence[File]) -> Section:
    """The run's other files with links; nothing where they are not known."""
    others = [file for file in found if not file.path.endswith(_TRACES)]
    parts = [Files([_link(file.path, file.size) for file in others[:MOST]]), *more(len(others) - MOST, "files")]
    return Section("files", "Files", "Links work where this page lies in the run's directory.", parts if others else [])


def _link(path: str, count: int | None) -> Text:
    """A link below the page's own directory, and nowhere else."""
    inside = not path.startswith("/") and ".." not in path.split("/")
    small = [] if count is None else [size(count)]
    return link(path, path, *small) if inside else Text(path, "span", small=small)
