"""What to type, or to write into somebody else's script, to train with what a search found; and the patch for it."""

import ast
import contextlib
import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strobe.diagnose.candidates import WORKERS
from strobe.diagnose.foreign import argument, calls
from strobe.errors import DataError
from strobe.overrides import command_of, key_of
from strobe.present.format import here
from strobe.records.run import Record, load_record
from strobe.tune.record import Tuning

MADE_BY = {"engine": "loader", "data": "loader", "trainer": "trainer", "model.fused": "optimizer"}
CALLED = {"loader": "DataLoader", "optimizer": "Optimizer", "trainer": "Trainer"}  # as ``calls`` has them
NO_WORKERS = (
    *("engine.prefetch_factor=null", "engine.persistent_workers=false"),
    *("engine.multiprocessing_context=null", "engine.timeout=0"),
)
PLACES = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler"),
    *("num_workers", "collate_fn", "pin_memory", "drop_last", "timeout"),
)

Change = tuple[int, int, bytes]  # from, to, and what stands there instead
Made = Mapping[str, Sequence[Mapping[str, Any]]]  # by loader, trainer and optimizer: {call, file, line, column ...}


def given(tuning: Tuning) -> str:
    """The command that trains as it was given."""
    return str(tuning.header["script"] or command_of(tuning.header["given"]))


def lines(tuning: Tuning) -> list[str]:
    """The command with what is recommended, or what to write in a script and where; none where nothing is to change."""
    if tuning.header["script"] is None:
        return [command_of(tuning.recommended)]
    return list(dict.fromkeys(edit.told for edit in edits(tuning.recommended, made(tuning))))


def made(tuning: Tuning) -> Made:
    """Where the script made what it trains with, as the first look at it found; {} if that is not known."""
    found: Made = record.setting("made", {}) if (record := first_probe(tuning)) is not None else {}
    return found


def first_probe(tuning: Tuning) -> Record | None:
    """The record of the first look at what is searched; None if it was removed, or there was none."""
    with contextlib.suppress(DataError, IndexError):
        return load_record(tuning.folder / tuning.probes[0]["directory"])
    return None


@dataclass(frozen=True)
class Edit:
    """Something to write: one call with its changed arguments, and where the script has it, if it was found."""

    text: str  # DataLoader(..., num_workers=4)
    overrides: tuple[str, ...]
    call: Mapping[str, Any] | None = None  # of ``Made``

    @property
    def told(self) -> str:
        """What to write, and where."""
        if self.call is not None and self.call["constructor"]:
            return f"{self.text} in {self.call['call']}'s constructor{', called at ' * bool(self.place)}{self.place}"
        return f"{self.text}{' at ' * bool(self.place)}{self.place}"

    @property
    def place(self) -> str:
        """The file, from the working folder, and the line; empty if that is not known."""
        if self.call is None or "file" not in self.call:
            return ""
        return f"{here(Path(self.call['file']))}:{self.call['line']}"


def edits(overrides: Sequence[str], made: Made) -> list[Edit]:
    """What to write for these overrides: each call that trains, with all its changes."""
    groups: dict[str, list[str]] = {}
    for override in overrides:
        groups.setdefault(_made_by(override) or override, []).append(override)
    written = []
    unknown: Sequence[None] = (None,)
    for kind, texts in groups.items():
        for call in made.get(kind) or unknown:
            refused = NO_WORKERS if call and f"{WORKERS}=0" in texts else ()
            all_of_it = [*texts, *(text for text in refused if argument(text)[0] in (call or {})["given"])]
            (text,) = calls(all_of_it)
            name = call["call"] if call and not call["constructor"] else CALLED.get(kind, "")
            written.append(Edit(text.replace(CALLED.get(kind, ""), name, 1), tuple(all_of_it), call))
    return written


def _made_by(override: str) -> str:
    """Which call takes this argument: the loader's, the trainer's or the optimizer's; empty if none does."""
    key = key_of(override)
    return MADE_BY.get(key, MADE_BY.get(key.partition(".")[0], ""))


def patch(edits: Sequence[Edit]) -> tuple[str, list[str]]:
    """A patch for ``git apply`` with those of the edits whose call can be changed, and why others are left out.

    Files are named from the root of their repository, and without one from the working folder, or their own.
    """
    sources: dict[Path, list[Change]] = {}
    left_out = []
    for edit in edits:
        try:
            path, changes = _changes(edit)
        except (ValueError, OSError, SyntaxError) as error:
            left_out.append(f"{edit.text} is not in the patch: {error}")
        else:
            sources.setdefault(path, []).extend(one for one in changes if one not in sources[path])
    return "".join(_difference(path, changes) for path, changes in sources.items()), list(dict.fromkeys(left_out))


def applying(file: Path, edits: Sequence[Edit]) -> str:
    """The command that applies such a patch; from the files' root, where git would not find them from here."""
    noted = [edit.call for edit in edits if edit.call is not None and not edit.call["constructor"]]
    changed = [Path(call["file"]) for call in noted if "file" in call]
    folder = Path.cwd()
    root = next(map(_root, changed), folder)
    if folder.is_relative_to(root) and all(path.is_relative_to(folder) for path in changed):
        return shlex.join(["git", "apply", str(file)])
    return shlex.join(["git", "-C", str(root), "apply", str(file.absolute())])


class _Source:
    """A file's bytes, in which places are those of its syntax tree."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_bytes()
        try:
            self.text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not written in UTF-8") from error
        self._starts = [0]
        for line in self.text.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def start(self, node: ast.expr | ast.keyword) -> int:
        """Of a node, from the file's beginning."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.keyword) -> int:
        """Behind a node."""
        return self._starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def indentation(self, node: ast.keyword) -> bytes | None:
        """What stands before a node on its line, if that is only space."""
        before = self.text[self._starts[node.lineno - 1] : self.start(node)]
        return None if before.strip() else before

    def call(self, spot: tuple[int, int, int, int]) -> ast.Call | None:
        """The call between two lines and columns."""
        nodes = (node for node in ast.walk(ast.parse(self.text, str(self.path))) if isinstance(node, ast.Call))
        places = ((one, (one.lineno, one.col_offset, one.end_lineno, one.end_col_offset)) for one in nodes)
        return next((one for one, place in places if place == spot), None)


def _changes(edit: Edit) -> tuple[Path, list[Change]]:
    """The file of an edit, and the changes to it; raises a ValueError that says why it cannot be made."""
    about = edit.call
    if about is None:
        outside = any(key_of(text).startswith("environment.") for text in edit.overrides)
        what = "it is no line of the script" if outside else "it is a line of its own, to write before training begins"
        raise ValueError("its place was not found" if any(map(_made_by, edit.overrides)) else what)
    if "file" not in about:
        raise ValueError("its place was not found")
    if about["constructor"]:
        raise ValueError(f"{about['call']} at {edit.place} has a constructor of its own; change it there")
    source = _Source(Path(about["file"]))
    call = source.call((about["line"], about["column"], about["end_line"], about["end_column"]))
    if call is None:
        raise ValueError(f"{edit.place} has changed since")
    written = {word.arg: word.value for word in call.keywords}
    changes: list[Change] = []
    new: list[str] = []
    for name, value in map(argument, edit.overrides):
        node = written.get(name) or (None if about.get("passes") else _positional(call, name))
        if node is not None:
            changes.append((source.start(node), source.end(node), value.encode()))
        elif name in about["given"]:
            raise ValueError(f"the call at {edit.place} is not given {name} by name; change it there")
        else:
            new.append(f"{name}={value}")
    return source.path, changes + _added(source, call, new)


def _positional(call: ast.Call, name: str) -> ast.expr | None:
    """The argument that a DataLoader is given by its place."""
    place = PLACES.index(name) if name in PLACES else len(call.args)
    starred = any(isinstance(one, ast.Starred) for one in call.args[: place + 1])
    return None if starred or place >= len(call.args) else call.args[place]


def _added(source: _Source, call: ast.Call, new: Sequence[str]) -> list[Change]:
    """Arguments behind a call's last one, or on a line of their own before it, if it stands so."""
    if not new:
        return []
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    last = max(arguments, key=source.end, default=None)
    text = ", ".join(new).encode()
    if last is None:
        return [(source.end(call) - 1, source.end(call) - 1, text)]
    if isinstance(last, ast.keyword) and (space := source.indentation(last)) is not None:
        end = b"\r\n" if b"\r\n" in source.text else b"\n"
        return [(source.start(last), source.start(last), text + b"," + end + space)]
    behind = source.end(last)
    closing = re.match(rb"(\s*\))*", source.text[behind : source.end(call) - 1])  # of an argument in parentheses
    behind += closing.end() if closing else 0
    return [(behind, behind, b", " + text)]


def _difference(path: Path, changes: Sequence[Change]) -> str:
    before = after = path.read_bytes()
    for start, end, text in sorted(changes, reverse=True):
        after = after[:start] + text + after[end:]
    name = path.relative_to(_root(path)).as_posix()
    return "".join(difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}"))


def _root(path: Path) -> Path:
    """The folder from which a patch names a file."""
    outside = Path.cwd() if path.is_relative_to(Path.cwd()) else path.parent
    return next((folder for folder in path.parents if (folder / ".git").exists()), outside)


def _lines(text: bytes) -> list[str]:
    *whole, last = text.decode().split("\n")
    return [f"{line}\n" for line in whole] + ([f"{last}\n\\ No newline at end of file\n"] if last else [])
