"""In which line of the user's own code a finding's time goes, where the training thread's stack shows it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strobe.callbacks.columns import BETWEEN, CALLING_BACKWARD, COLLECTING, LOADING, OWNED, PHASES, RECOMPUTING, THREAD
from strobe.diagnose.attribution import PLACES
from strobe.diagnose.cores import threads_beside
from strobe.diagnose.foreign import in_words, is_foreign
from strobe.diagnose.looks import (
    at_line,
    computes,
    elsewhere,
    in_functions,
    in_libraries,
    is_outside_torch,
    looks,
    seen_in,
)
from strobe.diagnose.rules import NAMES_LINES, Finding
from strobe.diagnose.symptoms import PREPARING
from strobe.diagnose.uneven import CALL_IT_LESS, LOOK_FOR_IT
from strobe.present.format import as_fast, percent
from strobe.records.run import Record, amount

MOSTLY = 0.3  # of a phase: less in one function is not told
SECOND = 0.2  # of a phase: less in another function is not told
SOME = 0.1  # of a wait for workers, in which the training process seldom runs any
LONG = 0.2  # of the step: a shorter phase is not told of where nothing was found
CALLS = ("backward", "optimizer")  # phases that a loop's own function merely calls
WITHIN = ("library_call", "outside_torch", "python_code", "recomputing")  # causes that are but a part of their phase
AT = 0.5  # of a function: its line is named if it has so much
PHASE_OF = {
    "loader": "data_wait",
    "workers_hurt": LOADING,
    "epoch_start": "data_wait",
    "optimizer": "optimizer",
    "small_batch": "forward",
    COLLECTING: COLLECTING,
    "launch_bound": "forward",
    "small_operations": "forward",
    "loop_code": "other",
    "recomputing": "backward",
}
CHEAPER = (
    " Or let that line do less: leave out what is cropped away, and compute once what does not change from sample to "
    "sample."
)
CALLED = {
    BETWEEN: "that time",
    LOADING: "the workers' time",
    "data_wait": "the wait",
    "optimizer": "the update",
    COLLECTING: "collecting",
} | PLACES


def with_line(finding: Finding, record: Record, *, longest: bool = False) -> Finding:
    """The finding, with a sentence on the function and line in which its phase, or its callback, mostly is.

    Or that of the ``longest`` phase which shows one, as where nothing was found: a backward pass runs no line of them.
    """
    phases: tuple[str, ...] = (PHASE_OF.get(finding.cause, finding.subject),)
    if finding.cause == BETWEEN and not finding.subject:
        phases = (BETWEEN,)
    elif finding.cause == "straggler":
        owner = record.text("ranks", "owner") or ""
        phases = (owner.rpartition("/")[2] or record.text("ranks", "phase") or "other",)
    elif finding.cause == "uneven_steps":
        phases = (record.text("uneven", "phase") or "other",)
    elif finding.cause == "slowing_down":
        phases = (record.text("quarters", "jump", "phase") or record.text("quarters", "phase") or "other",)
    elif finding.cause == "transfer":
        phases = PREPARING
    elif finding.cause in ("library_call", "outside_torch"):
        known = in_libraries(record) if finding.cause == "library_call" else in_functions(record)
        phases = tuple(phase for phase, _ in filter(None, [known.get(finding.subject)]))
    elif finding.cause == "background_thread":
        phases = tuple(f"{THREAD}{name}" for name, _ in threads_beside(record)[:1])
    if longest or finding.cause == "nothing":
        spent = {phase: record.seconds(phase) for phase in PHASES}
        whole = LONG * sum(spent.values())
        phases = tuple(one for one in sorted(spent, key=lambda one: -spent[one]) if spent[one] >= whole)
    if phases == ("data_wait",) and finding.cause != "epoch_start":
        phases = (LOADING, *phases)
    call, line = next(filter(any, (_told(record, phase, finding) for phase in phases)), ("", ""))
    sentence = f"{call} {line}".strip() if call != line else call
    if not sentence:
        return finding
    advice = _advice(finding, record, called=bool(call))
    sentence = in_words(sentence, record) if is_foreign(record) else sentence
    return replace(finding, evidence=f"{finding.evidence} {sentence}", advice=advice)


def _advice(finding: Finding, record: Record, *, called: bool) -> str:
    """What to do at a line that is told, or about the call of long steps alone if that is told, too."""
    advice = finding.advice.removesuffix(in_words(NAMES_LINES, record) if is_foreign(record) else NAMES_LINES)
    if finding.cause == "straggler":
        return f"See whether all ranks do the same there, and as much of it. {advice}"
    if finding.cause == "loader" and is_foreign(record):
        return advice + CHEAPER
    return CALL_IT_LESS if called and advice == LOOK_FOR_IT else advice


def _told(record: Record, phase: str, finding: Finding) -> tuple[str, str]:
    """Sentences on the call that only long steps make, or what lies between steps, and on the line of most time."""
    calls = seen_in(record, phase, "calls") if finding.cause in ("uneven_steps", BETWEEN) else []
    return _mostly(record, phase, finding, calls) if calls else "", _mostly(record, phase, finding, [])


def _mostly(record: Record, phase: str, finding: Finding, seen: list[Mapping[str, object]]) -> str:
    """Such as ``84% of the forward pass is spent in training_step, at train.py:57.``

    A finding that is only part of its phase (``WITHIN``) gets the line of that part, however short it is.

    Args:
        seen: the lines in which the phase was seen; those of the record that fit the finding if it is empty.
    """
    called = CALLED.get(phase, phase.removeprefix(THREAD))
    if phase not in (*PHASES, COLLECTING, BETWEEN, LOADING) and phase == called:
        phase = f"{OWNED}{phase}"
    library = {"library_call": finding.subject, "recomputing": RECOMPUTING}.get(finding.cause)
    share_of = "python" if finding.cause == "python_code" else "share"
    # The training thread sees what loads only where there are no workers; afterwards it was done without them.
    sources = [looks(record, phase), seen_in(record, phase, "ceilings", "loading", "lines")]
    if finding.cause == "uneven_steps":
        called, sources = f"{called} in long steps", [seen_in(record, phase, "long_lines")]
    slow = record.items("ranks", "slow")[:1] if finding.cause == "straggler" else []
    if any(slow):  # any other rank than 0
        sources = [seen_in(record, phase, "ranks", "lines")]
    places = defaultdict[tuple[str, str], defaultdict[int, float]](lambda: defaultdict(float))
    codes = dict[tuple[Any, Any], Any]()
    for one in next(filter(None, (seen, *sources)), ()):
        if library not in (None, one.get("library")) or not one.get("file") or one.get("library") == CALLING_BACKWARD:
            continue
        if finding.cause == "outside_torch" and not (is_outside_torch(one) and one.get("function") == finding.subject):
            continue
        place = str(one.get("file")), str(one.get("function"))
        places[place][int(amount(one.get("line")))] += amount(one.get(share_of))
        codes[place[0], one.get("line")] = one.get("code")
    if not places:
        return ""
    shares = {place: min(1.0, sum(lines.values())) for place, lines in places.items()}
    place, *others = sorted(shares, key=lambda one: -shares[one])
    whole, function = shares[place], place[1]
    workers = phase == "data_wait" and record.count("num_workers")  # the rest of the wait is theirs
    if whole < (SOME if workers else MOSTLY) and finding.cause not in WITHIN:
        return ""
    if phase in CALLS and finding.cause not in (*WITHIN, phase) and function in elsewhere(record, phase):
        return ""
    rank = f" on rank {slow[0]}" if slow else ""
    inside = "" if (phase, function) == ("forward", "training_step") else f" in {function},"  # which it is
    sentence = f"{percent(whole)} of {called}{rank} is spent{inside} {_at(place, places[place], codes)}"
    named = [place, *(one for one in others[:1] if shares[one] >= SECOND)]
    for other in named[1:]:
        sentence += f", and {percent(shares[other])} in {other[1]}, {_at(other, places[other], codes)}"
    if finding.cause not in ("single_thread", "nothing"):
        return f"{sentence}."
    return f"{sentence}.{_without({name: shares[file, name] for file, name in named}, phase, record)}"


def _at(place: tuple[str, str], lines: Mapping[int, float], codes: Mapping[tuple[Any, Any], Any]) -> str:
    """Such as ``at train.py:57 (`x = f(x)`)``, for a function of a file whose lines have these shares."""
    line = max(lines, key=lambda one: (lines[one], one))
    often = "" if lines[line] >= AT * sum(lines.values()) else "most often "
    return often + at_line(place[0], line, codes.get((place[0], line)))


def _without(functions: Mapping[str, float], phase: str, record: Record) -> str:
    """A sentence on how fast training would be without these shares of a phase; not of a network, or the loop."""
    seconds, total = (record.seconds(name) for name in (phase, "total"))
    if any(computes(one, record, phase) for one in functions) or not total:
        return ""
    most = as_fast(1 / max(1e-3, 1 - min(1.0, sum(functions.values())) * seconds / total))
    return f" Without {'both' if len(functions) > 1 else next(iter(functions))}, training would be up to {most}."
