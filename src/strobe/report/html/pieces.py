"""What several sections are made of."""

from collections.abc import Callable, Iterable

from strobe.report.html.text import esc


def section(anchor: str, title: str, note: str, body: str) -> str:
    """A part of the page: its heading and a note beside it; nothing without a body."""
    if not body:
        return ""
    note = f"<p>{note}</p>" if note else ""
    heading = f'<div class="heading"><h2>{title}</h2>{note}</div>'
    return f'<section id="{anchor}">{heading}<div class="body">{body}</div></section>'


def command(text: str) -> str:
    """A command to copy; the button appears where there is a script to serve it."""
    return (
        f'<div class="command"><pre><code>{esc(text, 20_000)}</code></pre>'
        '<button type="button" hidden="hidden" aria-label="Copy the command">Copy</button></div>'
    )


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], css: str = "") -> str:
    """A table of HTML cells. A head that starts with ``#`` stands over figures, set flush right."""
    heads = list(heads)
    kinds = ["figure" if head.startswith("#") else "" for head in heads]
    top = "".join(
        f'<th scope="col" class="{kind}">{head.lstrip("#")}</th>' for kind, head in zip(kinds, heads, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table class="{css}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def named(name: object, tag: str = "span") -> str:
    """A name in a table's cell, in two lines at most; the whole of it shows under the pointer."""
    return f'<{tag} class="name" title="{esc(name, 2000)}">{esc(name)}</{tag}>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names with values, both HTML."""
    lines = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{lines}</dl>' if lines else ""


def interval(low: float | None, high: float | None, show: Callable[[float], str]) -> str:
    """``75.0 to 80.7``; empty where the interval is unknown."""
    return "" if low is None or high is None else f"{show(low)} to {show(high)}"


def more(left: int, noun: str, tail: str = "") -> str:
    """What says that a list is cut; empty where nothing was left out."""
    return f'<p class="note">and {left:,} more {noun}{tail}</p>' if left > 0 else ""
