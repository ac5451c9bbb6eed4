"""What a finding in a record promises: a speed-up with its interval, or a bound in words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strobe.diagnose.predict import WORTH
from strobe.diagnose.rules import FINE, NO_CAUSE, NO_CERTAIN, Finding
from strobe.diagnose.symptoms import ACCUMULATE, BATCH_SIZE, SIZE
from strobe.diagnose.wasted import FOR_NOTHING
from strobe.measure import WIDEST
from strobe.overrides import key_of
from strobe.present.format import UNKNOWN, as_fast, counted, percent
from strobe.records.run import Record

WITHOUT = {
    "loader": "With no waiting at all",
    "unbatched_loop": "If they were",
    "unfused_attention": "Fused",
    "causal_mask": "Without them",
    "denormals": "Without them",
    "dtype": "In single precision",
    "oversubscription": "Without them",
    "fft_length": "With better ones",
    "product_order": "In another order",
    "sparse_layout": "By rows",
    "variance": "In two passes",
    "threads": "On all of them",
}
MOST_UNCERTAIN = 3  # are named
TUNE = "strobe tune tells what is faster."
LEARNING = {BATCH_SIZE, ACCUMULATE, SIZE}  # keys that change what is learned
ENDANGERS = ("growing_memory",)  # slows nothing down, but ends a run
# What shows of these is only a part: operations are more than their fixed cost; a lock, and new workers, slow all else;
# what a library computes, padding, and what is for nothing take the caches of what comes after; what grows was not free
# in the beginning.
AT_LEAST = (
    *("small_operations", "single_thread", "python_code", "padding", "background_thread", "unused_gradients"),
    *("workers_restart", "workers_hurt", "slowing_down", *FOR_NOTHING),
)


def is_measured(finding: Mapping[str, Any]) -> bool:
    """Whether the steps themselves show how long training would take without the cause, whatever the remedy."""
    low = Record(dict(finding)).number("predicted_speedup", "low") or 0.0
    return finding.get("cause") == "straggler" and low > 1


def gain(finding: Mapping[str, Any]) -> str:
    """The speed-up that a finding in a record promises: ``2.5x (2.3 to 2.6)``; empty without a remedy.

    With ``90%: `` before the interval if its level is known. Empty if the interval includes 1 or spans more than a
    factor of ``WIDEST``.
    """
    record = Record(dict(finding))
    median, low, high = (record.amount("predicted_speedup", key) for key in ("median", "low", "high"))
    if _is_bounded(finding) or low <= 1 or high > WIDEST * low:
        return ""
    middle, least, most_of_all = (f"{end:.{1 if median >= 1.5 else 2}f}" for end in (median, low, high))
    level = record.number("predicted_speedup", "level")
    return f"{middle}x ({f'{percent(level)}: ' if level else ''}{least} to {most_of_all})"


def most_of(finding: Mapping[str, Any]) -> float | None:
    """Of a finding without a remedy that was measured, how many times as fast training would be without the cause.

    By the share that it takes, or else by the prediction. That is more than what a remedy brings: workers, say, do not
    take all waiting away; but of some causes only a part shows (``AT_LEAST``). None where there is a remedy, and where
    the cause costs little.
    """
    if not _is_bounded(finding) or finding.get("cause") in ("shared_machine", *ENDANGERS):
        return None  # their cost in caches, and in threads that wait for each other, is unknown
    record = Record(dict(finding))
    median, high = (record.amount("predicted_speedup", key) for key in ("median", "high"))
    lost = record.number("share") or record.number("lost")  # 0 where other causes have all of it
    most = high if lost is None else 1 / max(1e-3, 1 - lost) if lost else median
    return most if most >= WORTH else None


def bound(finding: Mapping[str, Any]) -> str:
    """What ``most_of`` says, in words; empty where it is None."""
    if (most := most_of(finding)) is None:
        return ""
    without = WITHOUT.get(str(finding.get("cause")), "Without it")
    if finding.get("cause") in AT_LEAST or finding.get("partial"):
        return f"{without}, training would be about {as_fast(most)}, perhaps more"
    return f"{without}, training would be up to {as_fast(most)}"


def _is_bounded(finding: Mapping[str, Any]) -> bool:
    return not finding.get("overrides") and not is_measured(finding)


def uncertain(finding: Finding, steps: int) -> str:
    """Why so many measured steps promise no gain: a clause."""
    known, number = _span(finding), counted(steps, "step")
    return f"{known}: {number} differ too much" if known == UNKNOWN else f"too uncertain, {known} from {number}"


def with_uncertain(nothing: Finding, candidates: Sequence[Finding]) -> Finding:
    """The finding ``nothing``, with what may help: its gain is too uncertain to predict, or its cause is not known."""
    doubtful = [one for one in candidates if one.overrides and one.predicted_speedup.median >= WORTH]
    doubtful.sort(key=lambda one: -one.predicted_speedup.median)
    if not doubtful or nothing.title not in (FINE, NO_CAUSE):
        return nothing
    named = [one for one in doubtful if _span(one) != UNKNOWN][:MOST_UNCERTAIN]
    title, evidence = NO_CERTAIN if nothing.title == FINE else NO_CAUSE, nothing.evidence
    if named:
        spans = ", ".join(f"{' '.join(one.overrides)} ({_span(one)})" for one in named)
        changing = [one.advice for one in named if LEARNING & {key_of(override) for override in one.overrides}]
        evidence = " ".join((f"{evidence} Worth a try: {spans}; {TUNE}", *changing))
    return replace(nothing, title=title, evidence=evidence, advice=TUNE)


def _span(finding: Finding) -> str:
    """The interval of a prediction that promises nothing: ``0.8x to 1.9x``; ``not known`` if it is wider than that."""
    low, high = finding.predicted_speedup.low, finding.predicted_speedup.high
    return UNKNOWN if high > WIDEST * low else f"{low:.2g}x to {high:.2g}x"
