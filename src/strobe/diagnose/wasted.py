"""Computing that a step could leave out: for nothing, again, or on operands that make it slow."""

from dataclasses import dataclass

from strobe.callbacks.columns import OF_FIRST
from strobe.diagnose.looks import looks
from strobe.records.run import Record, amount


@dataclass(frozen=True)
class Waste:
    """A way to compute for nothing; the rule of its cause fills in what title and evidence have in braces."""

    kind: str  # in ``callbacks/wasted.py``, and in the record
    name: str  # in words, as a part of a step
    title: str
    evidence: str
    advice: str


FOR_NOTHING = {  # by cause
    "repeated_forward": Waste(
        "repeated",
        "computing the same again",
        "{repeats}",
        "What repeats takes {share} of each {step} step, with its backward pass, where it has one.{place}",
        "Compute it once, and use the result for each loss and metric: detach() it where that trains nothing.",
    ),
    "constant_results": Waste(
        "constant",
        "computing what does not change",
        "{share} of each step computes the same as the step before",
        "It takes {seconds} of each {step} step, from values that do not change.{place}",
        "Compute it once, before training, and keep it: in __init__ of the module, with register_buffer(), or of the "
        "data set.",
    ),
    "unused_results": Waste(
        "unused",
        "results that nothing uses",
        "{share} of each step computes results that nothing uses",
        "It takes {seconds} of each {step} step, the gradients of these results included.{place}",
        "Select first, then compute: the last layer only at the positions that the loss looks at, what a gate or a "
        "mask multiplies only for the rows that it does not set to zero, a conversion only of the part that is kept, "
        "torch.topk() in place of a sort. Leave out what no loss or metric reads.",
    ),
    "zeros": Waste(
        "sparse",
        "computing with zeros",
        "{share} of each step computes with matrices that are almost all zeros",
        "It takes {seconds} of each {step} step: {part:.1%} of the {shape} numbers of a matrix are zeros.{place}",
        "A sparse matrix (torch.sparse), index_add(), an embedding in place of one-hot vectors, or the diagonal alone "
        "(Normal in place of MultivariateNormal) leaves zeros out. If they are gradients, select what the loss needs "
        "before the product.",
    ),
    "alike_rows": Waste(
        "alike",
        "computing equal rows again",
        "{share} of each step computes equal rows again",
        "It takes {seconds} of each {step} step: {alike} of the rows that a layer computes equal an earlier "
        "one.{place}",
        "Compute each different row once, then repeat the result: a layer before expand(), repeat() or x[index], not "
        "after it. Where the same rows come in any order, use torch.unique(..., return_inverse=True).",
    ),
    "product_order": Waste(
        "order",
        "products of matrices in a costly order",
        "{share} of each step multiplies matrices in a costly order",
        "Products of {shape} numbers take {seconds} of each {step} step, with their gradients.{place}",
        "Multiply by thin matrices one by one: (x @ A) @ B in place of x @ (A @ B), and x @ W + (x @ A) @ B in "
        "place of x @ (W + A @ B); without a softmax, attention is q @ (k.transpose(-2, -1) @ v). Multiply by the one "
        "with fewest columns first: A @ (x @ W) in place of (A @ x) @ W.",
    ),
    "large_temporary": Waste(
        "broadcast",
        "tensors that are reduced at once",
        "{share} of each step makes and reduces a tensor of {bytes}",
        "It takes {seconds} of each {step} step: {shape} numbers, broadcast from far smaller tensors, and summed or "
        "compared at once.{place}",
        "Distances and sums of products need no such tensor: torch.cdist(), |x|² - 2xy + |y|² with a matrix product, "
        "or torch.einsum(). Of what else is computed so, torch.compile makes one loop.",
    ),
    "copied_again": Waste(
        "carried",
        "copying what was copied before",
        "{share} of each step copies what the same line had copied before",
        "It takes {seconds} of each {step} step: to add what is new, up to {bytes} are copied.{place}",
        "Keep one tensor and write what is new into it: buffer[position] = new, with a position that starts again at "
        "the end, in place of torch.cat() or torch.roll(). In a loop, append to a list, and call torch.cat() or "
        "torch.stack() once after it.",
    ),
    "slice_writes": Waste(
        "sliced",
        "copying gradients for each part that was written",
        "{share} of each step copies the gradient of a tensor that is written part by part",
        "For each such write, as in out[t] = y, the backward pass copies the gradient of the whole tensor, {bytes}: "
        "{seconds} of each {step} step.{place}",
        "Append the parts to a list, and join them once after the loop: out = torch.stack(parts), or torch.cat(parts).",
    ),
    "denormals": Waste(
        "denormal",
        "computing with denormal numbers",
        "Denormal numbers cost {share} of each step",
        "Processors are slow with numbers so close to zero (1e-38 in float32): operations on them take {seconds} of "
        "each {step} step longer than on zeros.{place}",
        "Call torch.set_flush_denormal(True) at the start of the script: they count as zeros then. Threads that torch "
        "has started before it is called stay slow. Or set them to zero where they come from, such as a signal that "
        "fades out.",
    ),
    "dtype": Waste(
        "dtype",
        "computing in a slower type of numbers",
        "Computing in {dtype} costs {share} of each step",
        "Operations on {dtype} numbers take {seconds} of each {step} step longer than in single precision.{place}",
        "Compute in float32, and compare the accuracy. float64 often comes from NumPy: convert it once, where the data "
        "is made, by astype(numpy.float32); model.float() converts weights. Numbers of 16 bits that a processor only "
        "emulates come from autocast, or from the trainer's precision.",
    ),
    "fft_length": Waste(
        "length",
        "Fourier transforms of awkward lengths",
        "The lengths of Fourier transforms cost {share} of each step",
        "Those of {length} numbers take longer than those of {quick}, a number with small prime factors only: "
        "{seconds} of each {step} step.{place}",
        "Let the transforms have a length whose prime factors are small, such as scipy.fft.next_fast_len() gives: "
        "rfft(x, n=...) appends zeros. That leaves convolutions as they are if the rest is cut off; a spectrum gets "
        "slightly closer frequencies.",
    ),
    "causal_mask": Waste(
        "causal",
        "attention to hidden positions",
        "{share} of each step attends to positions that a causal mask hides",
        "Half of the {shape} weights are hidden; computing them, too, takes {seconds} of each {step} step.{place}",
        "Say so by is_causal=True, and they are left out: scaled_dot_product_attention(q, k, v, is_causal=True) "
        "without a mask; nn.MultiheadAttention and nn.TransformerEncoder take it beside the mask, the former with "
        "need_weights=False, and without a mask of padding.",
    ),
    "variance": Waste(
        "variance",
        "variances in a single pass",
        "var() and std() cost {share} of each step",
        "They take {seconds} of each {step} step longer than a mean, and then a mean of squares, would: torch computes "
        "them in a single pass, which is slow where their numbers do not lie side by side.{place}",
        "Write x - x.mean(dim, keepdim=True) first, and .square().mean(dim) of that (times n / (n - 1) for the "
        "unbiased one). Or use a layer of torch that normalises like this, such as nn.LayerNorm, nn.InstanceNorm2d or "
        "nn.GroupNorm.",
    ),
    "sparse_layout": Waste(
        "layout",
        "products with sparse matrices that are stored by coordinates",
        "{share} of each step goes to the layout of sparse matrices",
        "Products with them, such as one of {shape}, take {seconds} of each {step} step longer than with the same "
        "numbers stored by rows (CSR).{place}",
        "Convert the matrix once, before training: by_rows = matrix.to_sparse_csr(). The backward pass would transpose "
        "it each time: also keep matrix.t().to_sparse_csr(), and let a torch.autograd.Function multiply by the one in "
        "forward() and by the other in backward(). A symmetric matrix is its own.",
    ),
    "unfused_attention": Waste(
        "attention",
        "attention's scaling and softmax",
        "Attention runs as separate operations: {share} of each step goes to scaling, masking and softmax",
        "For its {shape} weights that takes {seconds} of each {step} step, with their gradients.{place}",
        "torch.nn.functional.scaled_dot_product_attention() computes the same in one, fast if q, k and v are "
        "contiguous; nn.MultiheadAttention calls it with need_weights=False.",
    ),
    "unbatched_loop": Waste(
        "loop",
        "operations of a loop, one by one",
        "{rounds:,} rounds of a loop could be computed at once",
        "Their short operations, one after another, take {seconds} of each {step} step longer than they would "
        "together. These operations need no result of another round.{place}",
        "Replace the loop by operations on whole tensors: stack what it goes through, pad it where lengths differ, or "
        "use torch.vmap(). For gradients of each sample or output there are vmap() of torch.func.grad(), and "
        "torch.func.jacrev(); for many weights, torch._foreach_ operations.",
    ),
}
UNUSED = 0.1  # of the backward pass: a smaller part for gradients that no update uses is not reported


def padded(record: Record) -> float:
    """Seconds of a step's forward and backward pass for positions that are padding in every sample of a batch."""
    passes = sum(record.seconds(phase) for phase in ("forward", "backward"))
    return min(1.0, max(0.0, record.amount("padding"))) * passes


def for_gradients(record: Record) -> float:
    """Seconds of a step for gradients that nothing uses.

    What its operations show; else those of weights that no optimizer has, by how many these are.
    """
    by_weights = 0.0 if record.mapping("unused_backward") else record.amount("unused_gradients")
    share = min(1.0, max(0.0, by_weights, after_used(record)))
    shown = for_nothing(record, "unused_backward", "forward", "backward", "other")  # a loop's own may begin in any
    return max(shown, share * record.seconds("backward"))


def after_used(record: Record) -> float:
    """The share of the backward pass for gradients that no update uses; 0 where it is little, or on a GPU."""
    share = _share(record, "unused_backward", "backward")
    return share if share >= UNUSED else 0.0


def for_nothing(record: Record, kind: str, *phases: str) -> float:
    """Seconds of a step's phases that are of a kind (``callbacks/wasted.py``); 0 on a GPU, whose host runs ahead."""
    return sum(_share(record, kind, phase) * _usual(record, phase) for phase in phases)


def _usual(record: Record, phase: str) -> float:
    """Seconds of a phase, without what a few unusually long steps add: those that were followed were none of these."""
    long = record.number("uneven", "extra_seconds") if record.text("uneven", "phase") == phase else None
    return max(0.0, record.seconds(phase) - (long or 0.0))


def _share(record: Record, kind: str, phase: str) -> float:
    share = record.number(kind, phase) if record.on_cpu else None
    like = record.number("like", "first" if kind in OF_FIRST else "last", phase)
    if share is not None and like is not None:  # of steps of other optimizers nothing is known
        share *= like
    places = [*record.entries(kind, "functions"), *record.entries(kind, "lines")]
    if share is not None and places:  # what Python itself does there, and what memory costs, shows in looks
        seen = [one for one in looks(record, phase) if any(each.items() <= one.items() for each in places)]
        looked = sum(amount(one.get("share")) for one in seen)
        share = looked if seen and kind == "carried" else max(share, looked)  # its first copies cost more than others
    return min(1.0, max(0.0, share or 0.0))
