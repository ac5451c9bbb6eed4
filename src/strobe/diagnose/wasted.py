"""Computing that nothing uses: on padding, for gradients of nothing, and what a step has computed before."""

from strobe.diagnose.looks import looks
from strobe.records.run import Record, as_number

FOR_NOTHING = {  # causes: the kinds of ``callbacks/wasted.py`` that they are, and what they do
    "repeated_forward": ("repeated", "computing the same again"),
    "constant_results": ("constant", "computing what does not change"),
    "unused_results": ("unused", "results that nothing uses"),
    "zeros": ("sparse", "computing with zeros"),
    "alike_rows": ("alike", "computing equal rows again"),
    "large_temporary": ("broadcast", "tensors that are reduced at once"),
    "unfused_attention": ("attention", "attention's scaling and softmax"),
    "unbatched_loop": ("loop", "operations of a loop, one by one"),
}
UNUSED = 0.1  # of the backward pass: a smaller part for gradients that no update uses is not reported


def padded(record: Record) -> float:
    """Seconds of a step's forward and backward pass for positions that are padding in every sample of a batch."""
    passes = sum(record.number("step_seconds", phase) or 0.0 for phase in ("forward", "backward"))
    return min(1.0, max(0.0, record.number("padding") or 0.0)) * passes


def for_gradients(record: Record) -> float:
    """Seconds of a step for gradients that nothing uses.

    What its operations show; else those of weights that no optimizer has, by how many these are.
    """
    by_weights = 0.0 if record.mapping("unused_backward") else record.number("unused_gradients") or 0.0
    share = min(1.0, max(0.0, by_weights, after_used(record)))
    shown = for_nothing(record, "unused_backward", "forward", "backward", "other")  # a loop's own may begin in any
    return max(shown, share * (record.number("step_seconds", "backward") or 0.0))


def after_used(record: Record) -> float:
    """The share of the backward pass for gradients that no update uses; 0 where it is little, or on a GPU."""
    earlier = record.number("unused_backward") or 0.0  # as records had it that followed no operations
    share = max(earlier, _share(record, "unused_backward", "backward"))
    return share if share >= UNUSED and record.text("accelerator") == "cpu" else 0.0


def for_nothing(record: Record, kind: str, *phases: str) -> float:
    """Seconds of a step's phases that are of a kind (``callbacks/wasted.py``); 0 on a GPU, whose host runs ahead."""
    return sum(_share(record, kind, phase) * _usual(record, phase) for phase in phases)


def _usual(record: Record, phase: str) -> float:
    """Seconds of a phase, without what a few unusually long steps add: those that were followed were none of these."""
    long = record.number("uneven", "extra_seconds") if record.text("uneven", "phase") == phase else None
    return max(0.0, (record.number("step_seconds", phase) or 0.0) - (long or 0.0))


def _share(record: Record, kind: str, phase: str) -> float:
    share = record.number(kind, phase) if record.text("accelerator") == "cpu" else None
    if kind == "constant" and share is not None:  # what Python itself does there shows in looks at the stack
        functions = [one for one in record.items(kind, "functions") if isinstance(one, dict)]
        seen = [one for one in looks(record, phase) if any(each.items() <= one.items() for each in functions)]
        share = max(share, sum(as_number(one.get("share")) or 0.0 for one in seen))
    return min(1.0, max(0.0, share or 0.0))
