"""Computing for nothing: gradients and results that nothing uses, the same again, and products with zeros."""

from strobe.diagnose.looks import at_line
from strobe.diagnose.predict import NOTABLE, Step, up_to, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import PREPARING
from strobe.diagnose.wasted import FOR_NOTHING, UNUSED, after_used, for_gradients, for_nothing
from strobe.present.format import duration, percent, size
from strobe.records.run import Record


def unused_gradients(record: Record, step: Step) -> Finding | None:
    """The backward pass computes gradients of weights that nothing updates."""
    share, seconds = record.number("unused_gradients") or 0.0, for_gradients(record)
    if seconds < NOTABLE * step.seconds:
        return None
    after = after_used(record)
    if share >= max(UNUSED, after):
        title = f"{percent(share)} of the gradients are of weights that no optimizer has"
        advice = (
            "If these weights are not to learn, such as a teacher's or a frozen network's, compute with them under "
            "torch.no_grad(), or call requires_grad_(False) on them. Otherwise give them to the optimizer."
        )
    else:
        part = (
            f"{percent(after)} of the backward pass is" if after else f"{percent(seconds / step.seconds)} of a step is"
        )
        title = f"{part} for gradients that no update uses"
        advice = (
            "Detach what comes from a network that this loss does not train, as in discriminator(fake.detach()); call "
            "requires_grad_(False) on one that is frozen, and not requires_grad_() on what goes into it. Where that "
            "needs gradients, as for forces, name the weights: loss.backward(inputs=list(model.parameters()))."
        )
    evidence = f"Computing them takes {duration(seconds)} of each {duration(step.seconds)} step."
    most = up_to(without(step, compute=seconds))
    return Finding("unused_gradients", title, evidence, advice, (), most)


def repeated_forward(record: Record, step: Step) -> Finding | None:
    """The same is computed several times within a step."""
    calls, name = record.count("repeated", "calls") or 0, record.text("repeated", "name")
    title = f"{name} is called {calls} times on the same input" if name else f"A step computes the same {calls} times"
    return _found(
        record,
        step,
        "repeated_forward",
        title=title,
        evidence="What repeats takes {share} of each {step} step, with its backward pass, where it has one.{place}",
        advice="Compute it once, and use the result for each loss and metric: detach() it where that trains nothing.",
    )


def constant_results(record: Record, step: Step) -> Finding | None:
    """A step computes what does not change from step to step."""
    return _found(
        record,
        step,
        "constant_results",
        title="{share} of each step computes the same as the step before",
        evidence="It takes {seconds} of each {step} step, from values that do not change.{place}",
        advice="Compute it once, before training, and keep it: in __init__ of the module, with register_buffer(), or "
        "of the data set.",
    )


def unused_results(record: Record, step: Step) -> Finding | None:
    """A step computes results, or parts of them, that nothing uses."""
    return _found(
        record,
        step,
        "unused_results",
        title="{share} of each step computes results that nothing uses",
        evidence="It takes {seconds} of each {step} step, the gradients of these results included.{place}",
        advice="Select first, then compute: the last layer only at the positions that the loss looks at, a conversion "
        "only of the part that is kept, torch.topk() in place of a sort. Leave out what no loss or metric reads.",
    )


def zeros(record: Record, step: Step) -> Finding | None:
    """A step multiplies, or decomposes, matrices that hold hardly anything but zeros."""
    share, shape = record.number("sparse", "share") or 0.0, _shape(record, "sparse")
    return _found(
        record,
        step,
        "zeros",
        title="{share} of each step computes with matrices that are almost all zeros",
        evidence=f"It takes {{seconds}} of each {{step}} step: {share:.1%} of the {shape} numbers of a matrix are "
        "zeros.{place}",
        advice="A sparse matrix (torch.sparse), index_add(), an embedding in place of one-hot vectors, or the diagonal "
        "alone (Normal in place of MultivariateNormal) leaves zeros out. If they are gradients, select what the loss "
        "needs before the product.",
    )


def alike_rows(record: Record, step: Step) -> Finding | None:
    """A step computes with rows, or samples, most of which equal another one."""
    share = record.number("alike", "share") or 0.0
    return _found(
        record,
        step,
        "alike_rows",
        title="{share} of each step computes equal rows again",
        evidence=f"It takes {{seconds}} of each {{step}} step: {percent(share)} of the rows that a layer computes "
        "equal an earlier one.{place}",
        advice="Compute each different row once, then repeat the result: a layer before expand(), repeat() or "
        "x[index], not after it. Where the same rows come in any order, use torch.unique(..., return_inverse=True).",
    )


def large_temporary(record: Record, step: Step) -> Finding | None:
    """A step makes a large tensor of far smaller ones, only to reduce it again, such as all differences of pairs."""
    held, shape = size(record.number("broadcast", "bytes") or 0.0), _shape(record, "broadcast")
    return _found(
        record,
        step,
        "large_temporary",
        title="{share} of each step makes and reduces " + f"a tensor of {held}",
        evidence=f"It takes {{seconds}} of each {{step}} step: {shape} numbers, broadcast from far "
        "smaller tensors, and summed or compared at once.{place}",
        advice="Distances and sums of products need no such tensor: torch.cdist(), |x|² - 2xy + |y|² with a matrix "
        "product, or torch.einsum(). Of what else is computed so, torch.compile makes one loop.",
    )


def unfused_attention(record: Record, step: Step) -> Finding | None:
    """Attention is computed product by product, with a softmax and more in between."""
    return _found(
        record,
        step,
        "unfused_attention",
        title="Attention runs as separate operations: {share} of each step goes to scaling, masking and softmax",
        evidence=f"For its {_shape(record, 'attention')} weights that takes {{seconds}} of each {{step}} step, with "
        "their gradients.{place}",
        advice="torch.nn.functional.scaled_dot_product_attention() computes the same in one, fast if q, k and v "
        "are contiguous; nn.MultiheadAttention calls it with need_weights=False.",
    )


def unbatched_loop(record: Record, step: Step) -> Finding | None:
    """Rounds of a loop within a step that could be computed at once."""
    return _found(
        record,
        step,
        "unbatched_loop",
        title=f"{record.count('loop', 'rounds') or 0:,} rounds of a loop could be computed at once",
        evidence="Their short operations, one after another, take {seconds} of each {step} step longer than they would "
        "together. These operations need no result of another round.{place}",
        advice="Replace the loop by operations on whole tensors: stack what it goes through, pad it where lengths "
        "differ, or use torch.vmap(). For gradients of each sample or output there are vmap() of torch.func.grad(), "
        "and torch.func.jacrev(); for many weights, torch._foreach_ operations.",
    )


def _found(record: Record, step: Step, cause: str, *, title: str, evidence: str, advice: str) -> Finding | None:
    """A finding on what of a step is for nothing; {share}, {seconds}, {step} and {place} are filled in."""
    kind, _ = FOR_NOTHING[cause]
    computing = for_nothing(record, kind, *PREPARING, "forward", "backward", "other")
    waiting = for_nothing(record, kind, "data_wait")  # where the training process loads
    if computing + waiting < NOTABLE * step.seconds:
        return None
    said = {
        "share": percent((computing + waiting) / step.seconds),
        "seconds": duration(computing + waiting),
        "step": duration(step.seconds),
        "place": _place(record, kind),
    }
    most = without(step, compute=computing, wait=waiting)
    return Finding(cause, title.format(**said), evidence.format(**said), advice, (), up_to(most))


def _shape(record: Record, kind: str) -> str:
    """Such as ``4,096 x 256``."""
    return " x ".join(f"{side:,}" for side in record.items(kind, "shape") if isinstance(side, int))


def _place(record: Record, kind: str) -> str:
    """Such as `` Most of it is in encode, at train.py:57.``"""
    file, line, function = record.text(kind, "file"), record.count(kind, "line"), record.text(kind, "function")
    code = record.text(kind, "code")
    return f" Most of it is in {function}, {at_line(file, line, code)}." if file and line and function else ""
