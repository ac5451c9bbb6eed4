"""On a GPU: waiting for it in every step, too many short kernels, slow copies to it, idle tensor cores."""

from dataclasses import replace
from typing import Any

from strobe.diagnose.attribution import COMPUTING, IN_WORDS, garbage_seconds
from strobe.diagnose.foreign import is_foreign
from strobe.diagnose.hooks import hooks
from strobe.diagnose.looks import in_libraries, in_python
from strobe.diagnose.predict import NOTABLE, WORTH, Step, up_to, with_model, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import BFLOAT16, PREPARING, faster_precision, preparing, tried
from strobe.diagnose.wasted import FOR_NOTHING, for_nothing
from strobe.present.format import duration, pace, percent
from strobe.records.run import Alternative, Figure, Record, amount, as_number
from strobe.traces.rank import ALLOCATES

TRIED = 0.8  # of the operations' time: what of it was not measured in another type matters little
MOSTLY_IDLE = 0.6  # a GPU busy for less of the step waits for the host
INTEGER_SHARE = {"array": 1 / 4, "photos": 1 / 4, "tiles": 1 / 2}  # of float32's bytes: such data are uint8, uint16

_OTHERS = {"transfer", "fetch", "validation"}  # in these phases waiting belongs to another cause
_ADVICE = {
    "aten::item": "Keep the value on the GPU: log tensors (self.log takes them), and call .item() every N steps only.",
    "aten::is_nonzero": "Replace the condition on a tensor's value with torch.where, or check it every N steps only.",
    "aten::to": "Make the tensor on the GPU, or copy it with non_blocking=True from or to pinned memory.",
    "aten::nonzero": "Replace the selection, whose size depends on values, by torch.where or a product with the mask.",
    "cudaMalloc": "Remove torch.cuda.empty_cache(): torch reuses the memory that it has freed. If sizes vary and the "
    "GPU is full, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use smaller batches.",
    "cudaHostAlloc": "Pin memory once, before training, or in the loader: DataLoader(..., pin_memory=True).",
}
_ALIKE = {
    "aten::_local_scalar_dense": "aten::item",
    "aten::equal": "aten::is_nonzero",
    "aten::copy_": "aten::to",
    "aten::_to_copy": "aten::to",
    **dict.fromkeys(("cudaFree", "hipMalloc", "hipFree"), "cudaMalloc"),
    **dict.fromkeys(("cudaFreeHost", "cudaMallocHost", "hipHostMalloc", "hipHostFree"), "cudaHostAlloc"),
    **dict.fromkeys(("aten::index", "aten::masked_select", "aten::repeat_interleave"), "aten::nonzero"),
}


def synchronisation(record: Record, step: Step) -> Finding | None:
    """Training waits for the GPU within its steps, so work cannot be queued ahead; the trace shows where."""
    # With several ranks Lightning itself asks in each batch, outside of all phases, whether one got SIGTERM.
    own = {None} if (record.count("world_size") or 1) > 1 else set[str | None]()
    syncs = [sync for sync in record.entries("trace_evidence", "syncs") if sync.get("phase") not in _OTHERS | own]
    if record.setting("loop") is not None:  # whose copies from pageable memory are another cause, in whatever phase
        copied = next((sync for sync in syncs if _ALIKE.get(name := str(sync.get("name")), name) == "aten::to"), {})
        rest = {"seconds": max(0.0, _seconds(copied) - _to_gpu(record)[1])}
        syncs = [sync | rest if sync is copied else sync for sync in syncs]
    stall = sum(_seconds(sync) for sync in syncs)
    if not _on_gpu(record) or stall < NOTABLE * step.seconds:
        return None
    # Recording slows the host down, so it waits less for the GPU than it usually does.
    hidden = max(0.0, record.amount("trace_evidence", "step_seconds") - step.seconds)
    predicted = _between(step, step, likely=stall, most=stall + hidden)
    if predicted.median < WORTH:
        return None
    worst = max(syncs, key=_seconds)
    name = str(worst.get("name"))
    within = IN_WORDS.get(str(worst["phase"]), worst["phase"]) if worst.get("phase") else ""
    if worst.get("phase") == "callbacks" and (by_cost := hooks(record)):
        beside = sum(hook.mean for hook in by_cost[1:])
        if by_cost[0].mean >= _seconds(worst) > beside:  # else another one may be what waits
            within = by_cost[0].name
    during = f" in {within}" if within else ""
    share = percent(min(1.0, stall / step.seconds))
    calls = as_number(worst.get("calls")) or 1
    others = f" (all such calls: {duration(stall)})" if len(syncs) > 1 else ""
    known = _ADVICE.get(_ALIKE.get(name, name), "Move the call out of the step, or make it every N steps only.")
    if record.text("accelerator") != "xpu" and not ALLOCATES.fullmatch(name):
        known += " torch.cuda.set_sync_debug_mode('warn') names the line."
    return Finding(
        "synchronisation",
        f"{name}{during} waits for the GPU for {duration(_seconds(worst))} of each step",
        f"In the trace, {name}{during} waits {duration(_seconds(worst))} per step in {calls:.3g} calls{others}. Such "
        f"waits are {share} of each {duration(step.seconds)} step; the GPU is busy for "
        f"{duration(step.busy * step.images)} of it.",
        known,
        predicted,
        subject=str(worst.get("phase") or "other"),
    )


def launch_bound(record: Record, step: Step) -> Finding | None:
    """The GPU finishes kernels faster than the host launches them: larger batches, or fewer kernels."""
    names = ("device_busy", "kernels_per_step", "kernel_seconds_median")
    busy, kernels, kernel = (record.number("trace_evidence", name) for name in names)
    if not _on_gpu(record) or busy is None or not kernels or kernel is None:
        return None
    phases = sum(record.seconds(name) for name in ("prepare", "forward", "backward", "optimizer"))
    # What else the host does there launches nothing.
    beside = sum(seconds for _, seconds in in_libraries(record).values()) + garbage_seconds(record)
    beside += sum(in_python(record, name) for name in COMPUTING)
    computing = max(0.0, phases - record.amount("trace_evidence", "sync_seconds") - beside)
    starving = computing - step.busy * step.images
    is_idle = step.busy < MOSTLY_IDLE * step.length and starving > max(NOTABLE * step.seconds, step.wait * step.images)
    if not is_idle or kernel >= computing / kernels:
        return None
    measured = [
        (with_model(step, entry.rate, images=entry.images, ratio=entry.ratio), entry)
        for entry in _fewer_launches(record)
    ]
    predicted, best = max(measured, key=lambda pair: pair[0].median, default=(None, None))
    overrides: tuple[str, ...] = best.overrides if best else ()
    if predicted is None or predicted.median < WORTH:
        compiled = any("model.compile" in entry.changes for _, entry in measured)
        known = record.setting("model.compile")
        if compiled or known is True or (known is None and not is_foreign(record)):
            return None
        overrides = () if known is None else ("model.compile=true",)
        if is_foreign(record):  # of which nothing is measured
            predicted = up_to(without(step, compute=starving))
        else:
            predicted = _between(step, step, likely=starving / 2, most=starving)
    advice = "Use larger batches, so that each kernel does more."
    if "model.compile=true" in overrides:
        advice = "Compile the model, which fuses kernels; the first step then takes longer."
    elif not overrides:  # of a script's own loop, whose model is not known
        advice = f"{advice} Or torch.compile the model, which fuses kernels; the first step then takes longer."
    return Finding(
        "launch_bound",
        f"The GPU is busy for only {percent(step.busy / step.length)} of each step: its kernels are too short",
        f"A step launches {kernels:,.0f} kernels of {duration(kernel)} each (median). Launching one takes the host "
        f"{duration(computing / kernels)}, so the GPU waits for {duration(starving)} of each {duration(step.seconds)} "
        "step.",
        advice,
        predicted,
        overrides,
        lost=starving / (step.total * step.images),
    )


def transfer(record: Record, step: Step) -> Finding | None:
    """Copying batches to the GPU takes a notable share of the step, and they could be pinned or smaller."""
    if not _on_gpu(record):
        return _preparing(record, step)
    copying, pageable = _to_gpu(record)
    traced = copying > 0
    host, own = record.seconds("transfer"), record.setting("loop") is not None
    if own:  # which copies in any phase; from pageable memory the host waits
        host = max(host, pageable)
    device = record.amount("device_seconds", "transfer")
    host = min(host, step.spare + max(copying, device))  # for the rest it waits for what was queued before
    longest = max(host, device)
    if longest < NOTABLE * step.seconds:
        return None
    copying = copying or longest
    overrides, advice = [], []
    spared, fewer = 0.0, 0.0  # shares of the host's time, and of the bytes
    pinned = record.setting("engine.pin_memory")
    if record.has("engine.pin_memory") and pinned is not True and (pinned is False or pageable > copying / 2):
        overrides.append("engine.pin_memory=true")
        advice.append("Pin batches, so that the GPU copies them while the host goes on.")
        advice += ["Then copy with .to(device, non_blocking=True)."] * own
        spared = 1.0
    elif own and pageable > copying / 2:
        advice.append(
            "Pin the tensors once (tensor.pin_memory()), and copy them with .to(device, non_blocking=True). Copy small "
            "types, such as pixels as uint8, and make them float on the GPU."
        )
        spared = 1.0
    share = INTEGER_SHARE.get(str(record.setting("data.form")))
    if record.setting("loader.scale", "device") != "device" and share is not None:
        overrides.append("loader.scale=device")
        advice.append(f"Copy pixels as they are stored ({percent(share)} of the bytes), and scale them on the GPU.")
        spared, fewer = max(spared, 1 - share), 1 - share
    if not advice:
        return None

    def sparing(part: float) -> Step:
        return replace(step, busy=max(0.0, step.busy - part * copying / step.images))

    # A host that takes less time than the copies does not wait for them: what it saves then is unknown.
    likely = spared * (host if host >= copying / 2 else (host + longest) / 2)
    size = record.number("ceilings", "batch_bytes")
    batch = f"a batch of {size / 1e6:,.1f} MB" if size else "a batch"
    rate = f", {size / copying / 1e9:.1f} GB/s" if size and traced else ""
    return Finding(
        "transfer",
        f"Copying batches to the GPU takes {percent(min(1.0, longest / step.seconds))} of each step",
        f"Copying {batch} takes the host {duration(host)} of each {duration(step.seconds)} step, and the GPU "
        f"{duration(copying)} ({percent(pageable / copying)} from pageable memory{rate}).",
        " ".join(advice),
        _between(sparing(fewer), sparing(spared), likely=likely, most=spared * longest),
        tuple(overrides),
    )


def _preparing(record: Record, step: Step) -> Finding | None:
    """In an attached training on a CPU, the hooks around a batch's transfer take a notable share of the step."""
    wasted = sum(for_nothing(record, waste.kind, *PREPARING) for waste in FOR_NOTHING.values())
    seconds = preparing(record) - wasted
    if record.text("script") is None or seconds < NOTABLE * step.seconds:
        return None
    return Finding(
        "transfer",
        f"Preparing batches in the module takes {percent(seconds / step.seconds)} of each step",
        f"Hooks such as on_after_batch_transfer take {duration(seconds)} of each {duration(step.seconds)} step, while "
        "nothing else is done.",
        "Do this in the data set or in its collate_fn, where loader workers do it beside training, or with few "
        "operations on the whole batch.",
        without(step, compute=seconds),
    )


def precision(record: Record, step: Step) -> Finding | None:
    """A precision, if another one was measured to be faster on this hardware, or if it surely is."""
    on_gpu = _on_gpu(record)
    wanted = faster_precision(record) if on_gpu or record.on_cpu else None
    entry = record.alternative("model", "trainer.precision", wanted)
    predicted = with_model(step, entry.rate, images=entry.images, ratio=entry.ratio) if entry else None
    if entry is None or predicted is None or predicted.median < WORTH:
        return _slow_numbers(record, step) or _idle_tensor_cores(record, step)
    share = record.number("trace_evidence", "tensor_core_share")
    idle = f" Tensor cores were used for {percent(share)} of the kernels' time." if share is not None else ""
    now, quicker = pace(step.model.median) if step.model else "less", "Single" if wanted == "32-true" else "Mixed"
    return Finding(
        "precision",
        f"{quicker} precision is faster on this {'GPU' if on_gpu else 'processor'}",
        f"The model alone reaches {pace(entry.rate.median)} in {wanted}, {now} in {record.text('precision')}.{idle}",
        f"Train in {quicker.lower()} precision, and compare the accuracy.",
        predicted,
        entry.overrides,
    )


def _idle_tensor_cores(record: Record, step: Step) -> Finding | None:
    """Float32 matrix products, which tensor cores compute in TensorFloat-32, take much of the GPU's time.

    How much faster they get depends on the GPU, so the bound is that they take no time.
    """
    capability = record.items("environment", "gpu_capability")
    seconds = record.amount("trace_evidence", "float32_product_share") * step.busy * step.images
    able = (amount(capability[0]) if capability else 0) >= BFLOAT16
    if tried(record, "matmul_precision") or not able or seconds < NOTABLE * step.seconds:
        return None
    most = without(replace(step, busy=max(0.0, step.busy - seconds / step.images)), compute=seconds)
    return Finding(
        "precision",
        f"Float32 matrix products take {percent(min(1.0, seconds / step.seconds))} of each step, and leave the tensor "
        "cores idle",
        f"The GPU spends {duration(seconds)} of each {duration(step.seconds)} step in them. Its tensor cores can "
        "compute them in TensorFloat-32, which keeps 10 bits of each number's fraction.",
        "Allow TensorFloat-32, or train in mixed precision (bfloat16), which is faster still; compare the accuracy.",
        up_to(most),
        ("matmul_precision=high",),
        lost=1 - 1 / most.median,
    )


def _slow_numbers(record: Record, step: Step) -> Finding | None:
    """Double precision, or 16 bits that a processor emulates, where no other precision was measured: bounds.

    Double precision has twice the bytes. What emulating costs is not known: most of computing may be lost.
    """
    phases = [record.seconds(name) for name in ("forward", "backward", "optimizer")]
    measured = any(entry.changes.get("trainer.precision") == "32-true" for entry in record.alternatives("model"))
    measured = measured or record.amount("dtype", "tried") >= TRIED
    single = faster_precision(record) == "32-true"
    double = record.text("weights") == "float64" or str(record.setting("trainer.precision")).startswith("64")
    lost = sum(phases) / 2 if double else sum(phases[:2])
    if measured or not (single or double) or lost < NOTABLE * step.seconds:
        return None
    most = without(step, compute=lost)
    if double:
        title, predicted = "The weights are in double precision", up_to(most)
        why = "Most of them are float64, of twice the bytes of float32"
        advice = "Make them and the batches float32 (model.float()), and compare the accuracy."
    else:
        title = f"This processor only emulates {record.setting('trainer.precision')}"
        predicted = Figure(most.median, 1.0, most.high)
        why, advice = "It has no instructions for 16-bit numbers", "Train in single precision."
    return Finding(
        "precision",
        title,
        f"{why}; computing takes {duration(sum(phases))} of each {duration(step.seconds)} step.",
        advice,
        predicted,
        ("trainer.precision=32-true",) if single else (),
        lost=1 - 1 / most.median,
        partial=double,  # half of computing, which may be more than that
    )


def _to_gpu(record: Record) -> tuple[float, float]:
    """Seconds of a traced step in which batches are copied to the GPU, and of those from pageable memory."""
    copies = [(str(copy.get("kind")), _seconds(copy)) for copy in record.entries("trace_evidence", "copies")]
    copies = [(kind, seconds) for kind, seconds in copies if kind.startswith("HtoD")]
    return sum(seconds for _, seconds in copies), sum(s for kind, s in copies if kind.endswith("pageable"))


def _on_gpu(record: Record) -> bool:
    return record.text("accelerator") in ("cuda", "gpu", "xpu", "mps")


def _between(likely_step: Step, most_step: Step, *, likely: float, most: float) -> Figure:
    """A gain between nothing and ``most``, widened by the run's noise; seconds of a step's computing."""
    return Figure(
        without(likely_step, compute=likely).median,
        without(likely_step).low,
        max(without(most_step, compute=most).high, without(likely_step, compute=likely).high),
    )


def _fewer_launches(record: Record) -> list[Alternative]:
    size = record.whole("data.batch_size") or 0

    def fewer(key: str, value: str) -> bool:
        larger = key == "data.batch_size" and value.isdigit() and int(value) > size
        return larger or (key, value) == ("model.compile", "true")

    return [e for e in record.alternatives("model") if all(fewer(key, value) for key, value in e.changes.items())]


def _seconds(entry: dict[str, Any]) -> float:
    return max(0.0, amount(entry.get("seconds")))
