"""What pages are made of, as plain data: sections, and the parts in them. ``parts.html`` turns them into HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from strobe.present.format import counted, cut


@dataclass(frozen=True)
class Text:
    """A text with what belongs to it; in a table, in a list, or beside a name."""

    text: object = ""
    tag: str = ""  # of the element around it, such as b or code; "name": two lines at most, the whole when pointed at
    css: str = ""
    small: "Sequence[Words]" = ()  # in small print, after it
    sign: str = ""  # before it, for those who can see
    after: Markup | str = ""  # a drawing, mostly
    link: str | None = None  # relative to the page


Words = str | Text | Sequence["str | Text"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is not simply a text."""

    text: Words
    css: str = ""
    head: bool = False  # whether it names its row
    across: int = 1  # columns
    down: int = 1  # rows
    title: str = ""
    value: float | None = None  # by which a table that can be searched sorts it, where that is not its text


@dataclass(frozen=True)
class Row:
    """A row of a table with a class of its own."""

    cells: Sequence[object]  # Words and Cells
    css: str = ""
    anchor: str = ""  # of a link to it
    kind: str = ""  # by which a table that can be searched filters


class Part:
    """What stands in a section; ``parts.html`` has a macro for each class of them, of the class's name."""


@dataclass(frozen=True)
class Table(Part):
    """Rows below headings; one that starts with ``#`` stands over figures, which are set flush right."""

    heads: Sequence[Words | Cell]
    rows: Sequence[Sequence[object] | Row]  # of Words and Cells
    css: str = ""
    label: str = ""  # of a long table that scrolls in a box of its own
    tall: bool = False
    stacked: bool = False  # on a phone, where each cell below the first gets its heading as a label
    search: str = ""  # what is searched for, such as "operators": with a script to search, sort and filter rows

    @property
    def figures(self) -> list[bool]:
        """Which columns hold figures."""
        return [head.startswith("#") for head in self._heads]

    @property
    def labels(self) -> list[str]:
        """What stands above a figure where rows are stacked; nothing over the first, and of a key only its end."""
        heads = ["", *(head.removeprefix("#") for head in self._heads[1:])] if self.stacked else []
        ends = [head.rpartition(".")[2] for head in heads]
        return ends if len({*ends}) == len({*heads}) else heads

    @property
    def _heads(self) -> list[str]:
        """The headings as plain text."""
        names = []
        for head in self.heads:
            words = head.text if isinstance(head, Cell) else head
            text = words.text if isinstance(words, Text) else words
            names.append(text.striptags() if isinstance(text, Markup) else text if isinstance(text, str) else "")
        return names


@dataclass(frozen=True)
class Paragraph(Part):
    """A paragraph; ``css`` may be note, empty, advice or fair."""

    text: Words
    css: str = ""
    longest: int = 4000


@dataclass(frozen=True)
class Heading(Part):
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Facts(Part):
    """Names with values."""

    pairs: Sequence[tuple[str, Words]]


@dataclass(frozen=True)
class Command(Part):
    """A command to copy, with a button where there is a script to serve it."""

    text: str
    title: str = ""  # a heading above it


@dataclass(frozen=True)
class Chart(Part):
    """A drawing, with a heading above it and the keys of its colours below it."""

    drawing: Markup
    title: Words = ""
    keys: "Sequence[Key]" = ()
    legend: Sequence[Mapping[str, str]] = ()  # of each colour ``css``, ``name``, ``text``, ``unit`` and ``share``
    zoom: Mapping[str, Any] | None = None  # the drawing's figures, for a script that draws them anew


@dataclass(frozen=True)
class Key:
    """What a colour or a mark means; ``css``: of the mark, no mark without."""

    css: str
    text: str


@dataclass(frozen=True)
class Keys(Part):
    """What colours and marks mean."""

    keys: Sequence[Key]


@dataclass(frozen=True)
class Block(Part):
    """Parts that stand close together; side by side with ``css="panels"``; with a title they show when asked for."""

    parts: Sequence[Part]
    css: str = ""
    title: str = ""


@dataclass(frozen=True)
class Line:
    """A line of ``Rows``: a name, a drawing, a figure."""

    name: Words
    drawing: Markup
    figure: Words
    css: str = ""
    title: str = ""


@dataclass(frozen=True)
class Rows(Part):
    """Names, drawings and figures side by side, on one axis; on a phone the drawing moves below its name."""

    lines: Sequence[Line]
    below: Markup  # the axis
    unit: str
    above: Markup | str = ""  # the same axis once more
    css: str = ""


@dataclass(frozen=True)
class Files(Part):
    """Links to files near the page, each with what it is."""

    files: Sequence[Text]
    css: str = "files"


@dataclass(frozen=True)
class Pre(Part):
    """Text in lines that stay as they are."""

    text: str


@dataclass(frozen=True)
class Errors(Part):
    """Errors by number, each with what it ended."""

    errors: Sequence[tuple[str, str, str]]  # the number, what it ended, the message


@dataclass(frozen=True)
class Cards(Part):
    """Findings: what is wrong, why, what to do, what that is predicted to bring, and the command for it.

    Each with ``rank``, ``title``, ``cause``, ``texts`` and ``command``; ``fine`` where there is nothing to do; ``gain``
    with a ``hint`` and a ``drawing`` where it is known.
    """

    cards: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Flame(Part):
    """Flame graphs, of which one is shown; each with ``title``, ``total``, ``boxes``, ``lanes`` and ``names``."""

    flame: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Tile:
    """A figure at the top of a page."""

    name: str
    figure: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Tiles(Part):
    """The main figures, side by side."""

    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading with a note, and what is below it; without parts it is left out."""

    anchor: str
    title: str
    note: Words
    parts: Sequence[Part]
    wide: bool = False  # with its heading above, for what is broad


@dataclass(frozen=True)
class Page:
    """A page: its header, and its sections. ``made_from``: what it shows again, in its last line."""

    title: str  # of the browser's tab
    what: Iterable[object]  # was measured, when and where, beside this program's name; what is unknown is left out
    said: object  # the headline
    head: Sequence[Part]  # below the headline
    sections: Sequence[Section]
    made_from: str
    badges: Sequence[tuple[str, str]] = ()  # class and text
    css: str = ""
    long: bool = False  # whether the headline is as long as a paragraph


def named(text: object, tag: str = "span", *small: str) -> Text:
    """A name in a table: in two lines at most, the whole of it shows when it is pointed at."""
    return Text(text, tag, "name", small)


def strong(text: object, *small: Words) -> Text:
    """A figure with what is small below it; empty lines are left out."""
    return Text(text, "b", small=[words for words in small if words])


def link(path: str | None, words: str, *small: str) -> Text:
    """A link to a file beside or near the page; the words alone where its path is not relative."""
    if not path or path.startswith("/"):
        return Text(words, "span", "none", small)
    return Text(words, small=small, link=f"./{quote(path.encode('utf-8', 'replace'))}")


def figures(files: Mapping[str, str]) -> Block:
    """The files beside a page that programs read, each with what it is."""
    links = [link(name, name, words) for name, words in files.items()]
    return Block([Heading("The figures, to be read by programs"), Files(links, "figures-files")])


def notice(css: str, *parts: Part) -> list[Part]:
    """What must be seen before any figure: ``bad``, ``fair`` or ``good``."""
    return [Block(parts, f"error {css}")] if parts else []


def tiles(figures: Sequence[Tile]) -> list[Part]:
    """The main figures; nothing without any."""
    return [Tiles(figures)] if figures else []


def errors(ended: Iterable[tuple[str, str]], mark: str = "[{}]") -> list[Errors]:
    """Each error with its number, as ``mark`` has it, and the cells that it ended; ``ended`` are cells and errors."""
    cells: dict[str, list[str]] = {}
    for cell, error in ended:
        cells.setdefault(error, []).append(cell)
    lines = []
    for number, (error, names) in enumerate(cells.items(), 1):
        count = f" ({counted(len(names), 'cell')})" if len(names) > 1 else ""
        lines.append((mark.format(number), f"{cut('; '.join(names), 570)}{count}", error))
    return [Errors(lines)] if lines else []


def note(*sentences: str | Text) -> list[Part]:
    """Sentences in small print; nothing without any."""
    known = [sentence for sentence in sentences if sentence]
    return [Paragraph(known, "note")] if known else []


def more(left: int, noun: str, tail: str = "") -> list[Part]:
    """What says that a list is cut; nothing where nothing was left out."""
    return note(f"and {left:,} more {noun}{tail}") if left > 0 else []


def facts(pairs: Iterable[tuple[str, Words]]) -> list[Part]:
    """Names with values; nothing without any."""
    known = list(pairs)
    return [Facts(known)] if known else []
