"""Trace files in the Chrome trace format: reads what any tool writes, writes what every reader accepts.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

import codecs
import gc
import gzip
import json
import math
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from operator import itemgetter
from pathlib import Path
from stat import S_IMODE
from typing import Any

Trace = dict[str, Any]
Event = dict[str, Any]

_GZIP = b"\x1f\x8b"  # RFC 1952, 2.3.1
_LEVEL = 6  # of gzip: a fifth of 9's time for a sixth more bytes
_PIECE = 1 << 20  # bytes of text that are read at a time
_LONGEST = 1 << 24  # characters of one event: what ends later is damaged
_BETWEEN = re.compile(r"[\s,:]*").match
_DECODE = json.JSONDecoder(strict=False).raw_decode
_BATCH = 1000  # events encoded at a time: quick, and never the whole text in memory


start_of = itemgetter("ts")  # when a range begins, in microseconds


class TraceError(ValueError):
    """A file cannot be read as a trace: one sentence with its name, what is wrong and the remedy."""


class Scan:
    """The events of a trace one after the other, however large it is; a damaged file as far as it can be read.

    After the last event `said` holds what else the file says, and `fault` why it could not be read to its end, if so.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.said: Trace = {}
        self.fault = ""
        self._text, self._at = "", 0
        self._pieces = self._read()

    def __iter__(self) -> Iterator[Event]:
        try:
            opened = self._mark()
            if opened == "[":
                yield from self._events()
            elif opened == "{":
                self._at += 1
                while self._mark() not in ("}", ""):
                    key = self._value()
                    if self._mark() == "[" and key == "traceEvents":
                        yield from self._events()
                    else:
                        self.said[key] = self._value()
            if opened == "{" and not self._mark():
                self.fault = self.fault or "ends in the middle"
        except (ValueError, TypeError, RecursionError):
            self.fault = self.fault or "is cut off or damaged"

    def _events(self) -> Iterator[Event]:
        self._at += 1
        while (mark := self._mark()) and mark != "]":
            event = self._value()
            if isinstance(event, dict):
                yield event
        self._at += 1

    def _mark(self) -> str:
        """The next character that says something; empty at the end."""
        while True:
            self._at = _BETWEEN(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        while True:
            try:
                value, end = _DECODE(self._text, self._at)
            except ValueError:
                if len(self._text) - self._at > _LONGEST or not self._more():
                    raise
                continue
            if end < len(self._text) or not self._more():  # a number may go on
                self._at = end
                return value

    def _more(self) -> bool:
        piece = next(self._pieces, "")
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def _read(self) -> Iterator[str]:
        """The text in pieces; whatever is wrong with it ends it."""
        decoder, held = codecs.getincrementaldecoder("utf-8-sig")(errors="replace"), []
        try:
            with _opened(self.path) as file:
                while data := file.read1(_PIECE):
                    held.append(data)
                    if sum(map(len, held)) >= _PIECE:
                        yield decoder.decode(b"".join(held))
                        held.clear()
        except EOFError:
            self.fault = "ends in the middle"
        except (gzip.BadGzipFile, zlib.error):
            self.fault = "is damaged gzip"
        except OSError as error:
            self.fault = f"cannot be read ({error.strerror})"
        if held:
            yield decoder.decode(b"".join(held))


def read_trace(path: str | Path) -> Trace:
    """The object in a file, gzipped or not, with a list of objects as `traceEvents`; times are microseconds.

    Raises:
        TraceError: The file cannot be read, is damaged, or holds something else.
    """
    try:
        with _opened(path) as file:
            raw = file.read()
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist; name a .json or .json.gz trace") from None
    except EOFError:
        raise TraceError(f"{path} is incomplete; copy it again or record it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path} is damaged gzip ({error}); copy it again or record it again") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}); name a .json or .json.gz trace") from None
    if not raw:
        raise TraceError(f"{path} is empty; record it again")
    try:
        with without_gc():
            content = json.loads(raw)
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not JSON text; name a .json or .json.gz trace") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise TraceError(f"{path} is not whole, valid JSON ({error}); copy it again or record it again") from None
    trace = {"traceEvents": content} if isinstance(content, list) else content
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise TraceError(f"{path} has no list of traceEvents; name a trace that torch.profiler exported")
    return dict(trace)


def all_read(path: str | Path) -> bool:
    """Whether a trace's name shows its compression and its content is an object: most readers accept nothing else."""
    with _opened(path) as file:
        packed = isinstance(file, gzip.GzipFile)
        return packed == (Path(path).suffix == ".gz") and file.read(64).lstrip().startswith(b"{")


def write_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace, whole or not at all, gzipped if the name ends in `.gz`; a file that it replaces keeps its mode.

    Raises:
        OSError: The file cannot be written, or its folder is missing.
    """
    target = Path(path).resolve()  # a link goes on pointing to the file
    scratch = target.with_name(f".trace-{secrets.token_hex(8)}.tmp")
    try:
        with scratch.open("xb") as raw:
            if Path(path).suffix == ".gz":
                with gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
                    file.writelines(_pieces(trace))
            else:
                raw.writelines(_pieces(trace))
        if target.exists():
            scratch.chmod(S_IMODE(target.stat().st_mode))
        scratch.replace(target)
    except BaseException:  # Ctrl-C too leaves nothing behind
        scratch.unlink(missing_ok=True)
        raise


def is_range(event: Event) -> bool:
    """Whether an event has a beginning and a length."""
    times = event.get("ts"), event.get("dur")
    return event.get("ph") == "X" and all(isinstance(time, int | float) and math.isfinite(time) for time in times)


def category_of(event: Event) -> str:
    """An event's category in lower case; old versions of torch wrote capitals."""
    return str(event.get("cat")).lower()


def name_of(event: Event) -> str:
    """What an event is called."""
    return str(event.get("name"))


def end_of(event: Event) -> Any:
    """When a range ends, in microseconds."""
    return event["ts"] + event["dur"]


def outer_first(event: Event) -> tuple[Any, Any]:
    """Sorts the ranges of a thread in time, and those that begin together from the longest to the shortest."""
    return event["ts"], -event["dur"]


def args_of(event: Event) -> dict[str, Any]:
    """The arguments of an event, to be read."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def number_of(event: Event, key: str) -> int | str | None:
    """The argument of an event that ties it to others; None if it is no id."""
    value = args_of(event).get(key)
    return value if isinstance(value, int | str) else None


@contextmanager
def without_gc() -> Iterator[None]:
    """Pause garbage collection: it would search many new objects for cycles that they do not have."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _opened(path: str | Path) -> gzip.GzipFile | BufferedReader:
    """A file's text, unpacked if it is gzipped, whatever its name is."""
    with Path(path).open("rb") as file:
        packed = file.read(2) == _GZIP
    return gzip.open(path) if packed else Path(path).open("rb")


def _pieces(trace: Trace) -> Iterator[bytes]:
    """The JSON text, one event a line.

    Metadata has spaces, as HTA 0.5 looks for `"rank": <n>`. The events come last, as the Trace view of
    torch-tb-profiler 0.4.3 adds a GPU's metrics to them at the last `]` of the file.
    """
    encode = json.JSONEncoder(separators=(",", ":")).encode
    yield b"{\n"
    for key, value in trace.items():
        if key != "traceEvents":
            yield f"{json.dumps(key)}: {json.dumps(value)},\n".encode()
    yield b'"traceEvents": ['
    events = trace["traceEvents"]
    for start in range(0, len(events), _BATCH):
        separator = ",\n" if start else "\n"
        yield (separator + ",\n".join(map(encode, events[start : start + _BATCH]))).encode()
    yield b"\n]\n}\n"
