"""What looks at the training thread's stack tell of a step (the record's ``lines``).

The host of a GPU runs ahead of it: what the host does costs training no more than the time in which the GPU idles.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from strobe.callbacks.columns import PHASES, RECOMPUTING
from strobe.diagnose.predict import idle_of_device
from strobe.records.run import Record, amount

CALLING = ("forward", "other")  # phases in which a library call may be a cause
LONGEST = 72  # characters of a line's text
MOSTLY = 0.5  # of the looks at a function: if so many see a library, the function is there for calling it


def parts_seen(
    record: Record, places: Mapping[str, str], *, locked: bool
) -> Iterator[tuple[str, str, str, str, float]]:
    """Causes that they show: cause, subject, what it is in words, its phase, and seconds of a mean step.

    Args:
        places: computing phases, and what they are called.
        locked: whether training waits for another thread that holds Python's lock: then it is not told who does.
    """
    for name, (phase, seconds) in in_libraries(record).items():
        yield "library_call", name, f"in {name}", phase, seconds
    for name, (phase, seconds) in in_functions(record).items():
        yield "outside_torch", name, f"in {name}, outside torch", phase, seconds
    yield "recomputing", "", "computing activations again", "backward", recomputed(record)
    for phase, place in () if locked else places.items():
        yield "python_code", phase, f"Python code in {place}", phase, in_python(record, phase)


def in_libraries(record: Record) -> dict[str, tuple[str, float]]:
    """Libraries beside torch that the user's own code calls, by seconds of a step: the most first, each in one phase.

    That is the phase in which it takes longest. What ``in_functions`` counts is left out.
    """
    shares = defaultdict[tuple[str, str], float](float)
    for phase in CALLING:
        seen = looks(record, phase)
        counted = _outside(record, seen)
        for one in seen:
            if (name := _library(one)) and not _comes_with(one, counted):
                shares[phase, name] += amount(one.get("share"))
    cost = _cost(record)
    seconds = {key: cost * min(1.0, share) * record.seconds(key[0]) for key, share in shares.items()}
    longest: dict[str, tuple[str, float]] = {}
    for phase, name in sorted(seconds, key=lambda key: -seconds[key]):
        longest.setdefault(name, (phase, seconds[phase, name]))
    return longest


def in_functions(record: Record) -> dict[str, tuple[str, float]]:
    """Functions in whose lines no operation of torch's was seen, nor Python's lock held, as ``in_libraries``.

    NumPy's arithmetic, and what else is written in C, has no frame of its own. Its time is what torch's operations
    leave of a phase, at most: a line may be new since these were followed. What a function does in a library that is
    seen comes with it, where that is the smaller part.
    """
    longest: dict[str, tuple[str, float]] = {}
    for phase in CALLING:
        shares, in_library = defaultdict[str, float](float), defaultdict[str, float](float)
        seen = looks(record, phase)
        counted = _outside(record, seen)
        for one in seen:
            function, share = str(one.get("function")), amount(one.get("share"))
            if is_outside_torch(one):
                shares[function] += max(0.0, share - amount(one.get("python")))
            elif _library(one) and _comes_with(one, counted):
                in_library[function] += share
        computed = sum(record.amounts_of("costliest", phase).values())
        most = min(1.0, max(0.0, 1 - computed) / max(sum(shares.values()), 1e-9))
        spent = record.seconds(phase)
        for name, share in shares.items():
            if (seconds := min(1.0, most * share + in_library[name]) * spent) > longest.get(name, ("", 0.0))[1]:
                longest[name] = phase, seconds
    return dict(sorted(longest.items(), key=lambda one: -one[1][1]))


def is_outside_torch(line: Mapping[str, object]) -> bool:
    """Whether a line calls neither torch, nor a library that is seen."""
    return line.get("torch") is False and not _library(line) and bool(line.get("function"))


def _comes_with(line: Mapping[str, object], functions: set[object]) -> bool:
    """Whether a library's line is part of what one of these functions does outside torch."""
    return line.get("torch") is False and line.get("function") in functions


def _outside(record: Record, seen: Iterable[Mapping[str, object]]) -> set[object]:
    """Of functions that do not compute with torch, those with lines outside of it and of any library that is seen."""
    functions = {one.get("function") for one in seen if is_outside_torch(one)}
    return {function for function in functions if not computes(function, record, *CALLING)}


def at_line(file: str, line: int, code: object) -> str:
    """Such as ``at train.py:57 (`x = f(x)`)``; without the text where that is not known."""
    text = " ".join(code.split()) if isinstance(code, str) else ""
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    name = Path(file).name
    if name.startswith("__"):  # of __init__.py there are many
        name = f"{Path(file).parent.name}/{name}"
    return f"at {name}:{line}" + (f" (`{shown}`)" if shown else "")


def most_is_at(record: Record, *part: str) -> str:
    """A sentence, after a space, that names the line which a part of the record does; empty without one."""
    function, file, line = (record.text(*part, "function"), record.text(*part, "file"), record.count(*part, "line"))
    if not (file and line and function):
        return ""
    return f" Most of it is in {function}, {at_line(file, line, record.text(*part, 'code'))}."


def recomputed(record: Record) -> float:
    """Seconds of a step's backward pass in which activations are computed again, so that they need not be kept.

    0 on a GPU, whose backward pass is in another thread.
    """
    if not record.on_cpu:
        return 0.0
    return share_of(record, "backward", RECOMPUTING) * record.seconds("backward")


def share_of(record: Record, phase: str, library: str) -> float:
    """The share of a phase that is in a library, or that is work such as ``SAMPLING``."""
    seen = seen_in(record, phase, "lines")
    return min(1.0, sum(amount(one.get("share")) for one in seen if one.get("library") == library))


def in_python(record: Record, phase: str) -> float:
    """Seconds of a step in which a phase is in the user's own code, calls no library, and holds Python's lock.

    Without garbage collection.
    """
    own = [one for one in looks(record, phase) if not _library(one)]
    share = min(1.0, sum(amount(one.get("python")) for one in own))
    garbage = record.amount("garbage_seconds")
    return max(0.0, _cost(record) * share * record.seconds(phase) - garbage)


def looks(record: Record, phase: str) -> list[Mapping[str, object]]:
    """The lines of the user's own code in which a phase was seen.

    A library's arithmetic on arrays, such as ``a * b``, has no frame of the library's. So all lines of a function that
    mostly calls one count as that one, unless it also computes with torch, as networks and loops do.
    """
    seen = seen_in(record, phase, "lines")
    if phase not in CALLING:
        return seen
    functions = defaultdict[tuple[object, object], list[Mapping[str, object]]](list)
    for one in seen:
        functions[one.get("file"), one.get("function")].append(one)
    return [
        one
        for (_, function), lines in functions.items()
        for one in (lines if computes(function, record, *CALLING) else _as_called(lines))
    ]


def _as_called(lines: list[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The lines of a function, as those of the library that it mostly calls; as they are if it mostly calls none."""
    shares = defaultdict[str, float](float)
    for one in lines:
        shares[_library(one)] += amount(one.get("share"))
    none, most = shares.pop("", 0.0), max(shares, key=lambda name: shares[name], default="")
    return [{**one, "library": most} for one in lines] if none < MOSTLY * (none + sum(shares.values())) else lines


def seen_in(record: Record, phase: str, *keys: str) -> list[Mapping[str, object]]:
    """Of the lines below these keys of a record those in which a phase was seen."""
    return [one for one in record.items(*keys) if isinstance(one, Mapping) and one.get("phase") == phase]


def computes(function: object, record: Record, *phases: str) -> bool:
    """Whether a function computes with torch, as a network's, and the loop's own, which other phases show, too."""
    own = str(function) == "training_step" or str(function).endswith("forward")
    return own or function is None or function in elsewhere(record, *phases)


def elsewhere(record: Record, *phases: str) -> set[object]:
    """The functions that were seen in other phases than these."""
    seen = (one for one in record.items("lines") if isinstance(one, Mapping))
    return {one.get("function") for one in seen if one.get("phase") not in phases}


def _cost(record: Record) -> float:
    """The share of what the host does, in libraries and in Python, that a device waits for: all of it on a CPU."""
    if record.on_cpu:
        return 1.0
    busy = sum(
        amount(one.get("share" if _library(one) else "python")) * record.seconds(phase)
        for phase in PHASES
        for one in looks(record, phase)
    )
    return min(1.0, idle_of_device(record) / busy) if busy else 0.0


def _library(line: Mapping[str, object]) -> str:
    return name if isinstance(name := line.get("library"), str) else ""
