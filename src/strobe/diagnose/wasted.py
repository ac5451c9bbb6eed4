"""Computing that nothing uses: on padding, for gradients of nothing, and what a step has computed before."""

from strobe.records.run import Record

UNUSED = 0.1  # of the backward pass: a shorter part after the last used gradient is not reported


def padded(record: Record) -> float:
    """Seconds of a step's forward and backward pass for positions that are padding in every sample of a batch."""
    passes = sum(record.number("step_seconds", phase) or 0.0 for phase in ("forward", "backward"))
    return min(1.0, max(0.0, record.number("padding") or 0.0)) * passes


def for_nothing(record: Record) -> float:
    """Seconds of a step's backward pass for gradients that nothing uses.

    Those of weights that no optimizer has, by how many these are, or what follows the last gradient that is used.
    """
    share = min(1.0, max(0.0, record.number("unused_gradients") or 0.0, after_used(record)))
    return share * (record.number("step_seconds", "backward") or 0.0)


def after_used(record: Record) -> float:
    """The share of the backward pass after the last gradient that an update uses; 0 where it is little, or on a GPU."""
    share = record.number("unused_backward") or 0.0
    return share if share >= UNUSED and record.text("accelerator") == "cpu" else 0.0


def again(record: Record) -> float:
    """Seconds of a step's forward and backward pass for calls of a module with an input that it has had before."""
    if record.text("accelerator") != "cpu":
        return 0.0
    passes = ("forward", "backward")
    shares = (record.number("repeated", name) or 0.0 for name in passes)
    seconds = (record.number("step_seconds", name) or 0.0 for name in passes)
    return sum(min(1.0, max(0.0, share)) * each for share, each in zip(shares, seconds, strict=True))
