"""The top of a suite's page: the answer, then what was measured on which input and which machine."""

from collections.abc import Mapping
from typing import Any

from strobe.bench.page.shown import ranges
from strobe.report.html.pieces import facts, section
from strobe.report.html.text import esc, size

_STATUS = {"completed": "good", "failed": "bad"}
_SHORT = 12  # digits of a commit


def head(record: Mapping[str, Any]) -> str:
    """The suite, how far the result holds, and the conclusions."""
    environment = record.get("environment") or {}
    what = [f"benchmark suite {record['suite']}", environment.get("host"), day(record)]
    sentences = "".join(f"<li>{esc(sentence, 4000)}</li>" for sentence in record.get("conclusions") or [])
    said = f'<ul class="conclusions">{sentences}</ul>' if sentences else '<p class="lede">Nothing was concluded.</p>'
    return (
        f'<header><p class="kicker"><span class="brand">Strobe</span>'
        f'<span class="what">{esc(" · ".join(str(part) for part in what if part))}</span>{_badges(record)}</p>'
        f"<h1>{esc(record['title'])}</h1>{said}</header>"
    )


def measured_on(record: Mapping[str, Any]) -> str:
    """What was measured, the input, the machine and the versions."""
    found, environment = record.get("input") or {}, record.get("environment") or {}
    pairs = [("Input", esc(found.get("told") or "none"))]
    for key, name in (("cpu", "Processor"), ("usable_cores", "Usable cores")):
        if environment.get(key) is not None:
            pairs.append((name, esc(environment[key])))
    if environment.get("memory_bytes"):
        pairs.append(("Memory", size(environment["memory_bytes"])))
    pairs.append(("GPU", esc(environment.get("gpu") or "none")))
    if commit := environment.get("git_commit"):
        pairs.append(("Commit", f"<code>{esc(commit[:_SHORT] + '+' * commit.endswith('+'))}</code>"))
    versions = [f"{name}&nbsp;{esc(value)}" for name, value in _versions(environment)]
    also = f'<p class="note">{", ".join(versions)}</p>' if versions else ""
    notes = [f"<b>{words}</b>" for words, _ in notices(record)]
    body = f"<p>{esc(record['about'], 4000)}</p>{_paragraphs(notes)}{facts(pairs)}{also}"
    return section("input", "What was measured", "On which input, on which machine.", body)


def notices(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader must know before any figure, with the words of its badge."""
    found = []
    if (record.get("input") or {}).get("generated"):
        found.append(("The input is generated: real files may give other figures.", "generated input"))
    if record.get("quick"):
        found.append(("Quick mode: a check that the suite works, too short for conclusions.", "quick mode"))
    return found


def caption(record: Mapping[str, Any]) -> str:
    """A line for a picture that stands alone."""
    environment = record.get("environment") or {}
    cores = environment.get("usable_cores")
    parts = [
        *(badge for _, badge in notices(record)),
        (record.get("input") or {}).get("told"),
        environment.get("gpu") or environment.get("cpu"),
        f"{cores} cores" if cores else None,
        day(record),
        ranges(record["cells"]) or None,
    ]
    return " · ".join(str(part) for part in parts if part)


def day(record: Mapping[str, Any]) -> str:
    """The day on which measuring began."""
    return str(record.get("began") or "")[:10]


def _badges(record: Mapping[str, Any]) -> str:
    status = str(record.get("status") or "unknown")
    given = [("fair", badge) for _, badge in notices(record)]
    return "".join(
        f'<span class="badge {css}">{esc(text, 40)}</span>'
        for css, text in [*given, (_STATUS.get(status, "fair"), status)]
    )


def _versions(environment: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(esc(name), value) for name, value in (environment.get("versions") or {}).items() if value]


def _paragraphs(notes: list[str]) -> str:
    return "".join(f'<p class="fair">{words}</p>' for words in notes)
