"""Which causes count: those that are worth fixing, that no other one explains, and in which order."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from strobe.diagnose.attribution import TRIED
from strobe.diagnose.fetching import CAUSES as FETCHING
from strobe.diagnose.predict import WORTH
from strobe.diagnose.promise import ENDANGERS
from strobe.diagnose.rules import Finding
from strobe.diagnose.wasted import FOR_NOTHING

# A symptom, the cause that explains it if that costs more, and why.
EXPLAINED = (
    ("small_batch", "loader", "larger batches do not load faster"),
    ("launch_bound", "loader", "the device idles because it waits for data"),
    ("loader", "workers_hurt", "workers without a core load slowly"),
    ("page_faults", "workers_restart", "memory is copied as it is written to, because new workers share it"),
    ("threads", "workers_hurt", "there are too many threads because the workers take their cores"),
    ("small_batch", "threads", "threads without a core slow each kernel, short ones most"),
    ("memory_layout", "threads", "the layouts were compared on threads without a core"),
    ("optimizer", "threads", "an update is many short kernels, which threads without a core slow most"),
    ("workers_hurt", "threads", "the workers find no cores because the threads take them"),
    ("single_thread", "small_batch", "a step of short operations, each of one thread, whatever its size"),
    ("single_thread", "threads", "threads without a core slow all but one"),
    ("dtype", "precision", "the whole step was measured in float32"),
    ("precision", "dtype", "its operations were measured in float32, one by one"),
    ("single_thread", "memory_layout", "in the other layout the operations have parallel kernels"),
    *(
        ("single_thread", cause, "it is what its one thread does")
        for cause in ("small_operations", "library_call", "outside_torch", "python_code", "unbatched_loop")
    ),
    *((cause, "unbatched_loop", "it is of the loop") for cause in ("small_operations", "python_code")),
    ("library_call", "stalled", "it sleeps, or waits, there"),
    ("outside_torch", "stalled", "it sleeps, or waits, there"),
    ("small_operations", "small_batch", "larger batches make fewer operations per image"),
    ("optimizer", "background_thread", "an update is many short calls, each of which waits for Python's lock"),
    ("memory_layout", "background_thread", "the layouts were compared while it computed"),
    ("launch_bound", "stalled", "the host launches nothing while it waits"),
    ("launch_bound", "small_batch", "larger batches launch fewer kernels per image"),
    ("launch_bound", "synchronisation", "the device idles because the host waits for it"),
    ("small_batch", "synchronisation", "the device idles because the host waits for it"),
    ("slowing_down", "straggler", "they wait longer and longer for a slow rank"),
    ("uneven_steps", "straggler", "in long ones they wait for a slow rank"),
    ("launch_bound", "straggler", "the device idles because it waits for another rank"),
    ("single_thread", "oversubscription", "torch's other threads wait for a core"),
    ("synchronisation", "callback", "the callback is what waits for the device"),
    ("synchronisation", "logging", "the logger is what waits for the device"),
    *((cause, "synchronisation", "it waits for the device") for cause in ("callback", "logging", "optimizer")),
)
WAITS_IN = {"callback": "callbacks", "logging": "callbacks", "optimizer": "optimizer"}  # for the GPU, each of these
# Time that the run itself lost, as its steps show: a cause, however uncertain the gain of a remedy.
LOST = (
    "straggler",
    *("loader", *FETCHING, "workers_restart", "epoch_start"),
    *("callback", "logging", "checkpoint", "epoch_checkpoint", "validation", "loop_code"),
    *("optimizer", "stalled", "shared_machine", "child_processes", "oversubscription", "quota"),
    *("synchronisation", "transfer"),
    *("uneven_steps", "slowing_down", "background_thread", "garbage_collection", "library_call", "outside_torch"),
    *("python_code", "recomputing", "small_operations", "single_thread", "between", "padding", "upsampled", "swapping"),
    "page_faults",
    *("unused_gradients", *FOR_NOTHING),
)
# At the ends of epochs: a run without a whole epoch overstates them.
AT_ENDS = {"validation": "validation", "epoch_checkpoint": "checkpoints", "between": "between"}
UNATTRIBUTED = ("quota", "swapping", "page_faults", "synchronisation", "slowing_down")  # part of the other parts
PER_STEP = ("optimizer", "stalled", "callback", "loop_code", "logging", "checkpoint")  # a larger batch pays less often
TIE = 0.15  # of the largest share: smaller differences vary from run to run


def strongest(candidates: Sequence[Finding], shares: Mapping[tuple[str, str], float], *, sure: bool) -> list[Finding]:
    """The candidates that are worth fixing and that no stronger one explains; unless ``sure``, none from a ceiling."""
    kept: list[Finding] = []
    for one in sorted(candidates, key=lambda one: (-(one.lost or 0.0), -one.predicted_speedup.median, one.cause)):
        holds = sure or one.cause in (*LOST, *ENDANGERS)
        # A finding that is explained explains no other.
        if holds and _is_worth_fixing(one, shares) and not any(_covers(stronger, one) for stronger in kept):
            kept.append(one)
    if any(one.cause == "straggler" for one in kept):  # which may be most of another cause
        kept = [one for one in kept if (one.lost or 0.0) >= 1 - 1 / WORTH or one.cause == "straggler"]
    return kept


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The largest part first; among about equal parts, those that the steps themselves show, in the order of ``LOST``.

    So a configuration gets the same verdict, though each run measures a little less or more. What the same code costs
    within steps and between epochs counts together.
    """
    lost = defaultdict[tuple[str, str], float](float)
    for one in findings:
        lost[_owner(one)] += one.lost or 0.0
    ordered = sorted(findings, key=lambda one: (-lost[_owner(one)], -(one.lost or 0.0), one.cause, one.subject))
    equal = [one for one in ordered if lost[_owner(one)] >= (1 - TIE) * lost[_owner(ordered[0])]]
    places = {cause: place for place, cause in enumerate(LOST)}
    equal.sort(key=lambda one: (places.get(one.cause, len(LOST)), one.cause, one.subject))
    return [*equal, *ordered[len(equal) :]]


def share_lost(finding: Finding, shares: Mapping[tuple[str, str], float]) -> float:
    """The share of training that a cause takes: by attribution, or of what is no part of it, by what its rule saw."""
    key = finding.cause, finding.subject
    if finding.cause not in UNATTRIBUTED and (key in shares or finding.cause in (*LOST, "small_batch", *TRIED)):
        return shares.get(key, 0.0)
    return max(0.0, 1 - 1 / finding.predicted_speedup.median)


def _owner(finding: Finding) -> tuple[str, str]:
    """Whose time it is: that of a class, of checkpoints, or else of the cause alone."""
    if finding.cause in ("checkpoint", "epoch_checkpoint"):
        return "checkpoint", ""
    named = finding.cause in ("callback", "logging", "between") and finding.subject
    return ("", finding.subject) if named else (finding.cause, finding.subject)


def _is_worth_fixing(finding: Finding, shares: Mapping[tuple[str, str], float]) -> bool:
    """Whether it endangers the run, or a fix gains 3%: for sure, unless the run itself shows the loss."""
    if finding.cause in ENDANGERS:
        return True
    if finding.cause == "nothing" or (finding.cause == "small_batch" and not finding.lost):
        return False  # a larger batch is faster then, but not for a fixed cost: a remedy
    seen = finding.cause in ("workers_hurt", "threads") and (finding.cause, finding.subject) in shares
    predicted = finding.predicted_speedup
    return predicted.median >= WORTH and (seen or finding.cause in LOST or predicted.low >= 1)


def _covers(stronger: Finding, finding: Finding) -> bool:
    """Whether it explains the other finding, or changes the same keys."""
    explained = any((symptom, cause) == (finding.cause, stronger.cause) for symptom, cause, _ in EXPLAINED)
    return (explained and _in_one_phase(stronger, finding)) or not {*stronger.overrides}.isdisjoint(finding.overrides)


def _in_one_phase(*findings: Finding) -> bool:
    """Of a wait for the GPU and another finding: whether it waits in that one's phase; else True."""
    waits = [one.subject for one in findings if one.cause == "synchronisation"]
    phases = [WAITS_IN[one.cause] for one in findings if one.cause in WAITS_IN]
    return not waits or not phases or waits == phases
