"""What a record shows without any prediction: cores and memory for workers, their restarts, the first step."""

import math
from dataclasses import dataclass
from typing import Any

from strobe.callbacks.columns import PHASES, SAMPLING
from strobe.diagnose.looks import share_of
from strobe.diagnose.predict import Step, step_of
from strobe.present.format import listed, percent, size
from strobe.records.run import Record, amount, as_number

INTERVAL = "trainer.val_check_interval"
EPOCHS = "trainer.check_val_every_n_epoch"
BATCH_SIZE, ACCUMULATE = "data.batch_size", "trainer.accumulate_grad_batches"
PREPARING = ("transfer", "prepare")  # of batches: on a CPU both, as nothing is copied there
TENSOR_CORES, BFLOAT16 = 7, 8  # major compute capabilities: Volta's, Ampere's
ABOVE = 1.05  # times a ceiling: tolerance for measurement error
FAR_ABOVE = 1.2  # times a ceiling, however uncertain that is
SIZE, STRIDE = "data.size", 32  # by which common networks shrink their images
FAR_BEYOND = 2.0  # times the stored pixels of an image: beyond this most are interpolated
SHARED = 1.25  # times as fast as one process several workers load at most, if something that they share holds them
APART = 0.5  # times as fast as one process: if workers are slower, sending batches costs more than making them
BY_ITSELF = 0.5  # of the wait for workers, in which the thread that trains computes itself
COSTLY, NAMED = 0.1, 3  # of a phase: operations that take less are not named; so many at most
MANY, FIXED = 500, 0.1  # differentiable operations of a step; the share of it from which on their fixed cost is told
CHEAPER = "make the sampler cheaper, for example by drawing the indices of many batches at once"
NEARLY = 0.25  # of a core: what else runs now and then on one that is idle
SENT, LARGE = 4.0, 1e6  # times what a batch holds, and bytes, from which on sending costs time
SHM_SHARE = 0.5  # of /dev/shm: it holds more than batches in flight


@dataclass(frozen=True)
class WorkerLimit:
    """The most workers that a rank can have, and what limits them: cores, /dev/shm, or an epoch of few batches."""

    workers: int
    by: str


def is_rebuilt(record: Record) -> bool:
    """Whether a script makes its DataLoader anew in each epoch, and so its workers."""
    return record.setting("engine.rebuilt") is True


def worker_limit(record: Record, step: Step, *, lenient: bool = False) -> WorkerLimit | None:
    """How many workers a rank's share of the cores and of /dev/shm allows.

    None if the cores are unknown, or with an engine that has no workers beside training.

    ``lenient`` rounds up, so a number that was within the limit stays so after a second measurement.

    A worker that waits for its disk leaves its core to others: by the share of the time in which workers compute,
    there may be more of them than cores. Beside a GPU one core is the training process's own.
    """
    own = cores_of_a_rank(record)
    engine = record.text("choices", "engine")
    if own is None or engine == "resident":
        return None
    busy = 1.0
    if step.loader is not None and step.loader_cpu is not None:
        alone = record.amount("ceilings", "loading", "cores")  # of one process, which waits for no other
        seen = step.loader_cpu * step.loader.median / (step.ranks * max(1, step.workers))
        busy = min(1.0, max(0.05, seen, alone))
    fitting = (own if step.cores else own - 1) / busy
    most = WorkerLimit(max(1, math.ceil(fitting - 1e-6) if lenient else math.floor(fitting + 1e-6)), "cores")
    if (batches := record.count("batches_per_epoch")) and batches < most.workers:
        most = WorkerLimit(batches, "An epoch")
    free, size = record.number("environment", "shm_free_bytes"), record.number("ceilings", "batch_bytes")
    if free is not None and size and engine != "spdl":  # whose threads need none
        each = size * (record.whole("engine.prefetch_factor") or 2) * (record.count("devices") or 1)
        fitting = math.floor(SHM_SHARE * free / each)
        if fitting < most.workers:
            return WorkerLimit(fitting, "/dev/shm")
    return most


def cores_of_a_rank(record: Record) -> float | None:
    """The cores that this process may use (affinity, cgroup quota), divided by the ranks on this host."""
    cores = record.number("environment", "usable_cores")
    return cores / max(1, record.count("devices") or 1) if cores else None


def without_threads(record: Record) -> float:
    """The share of the cores open to a rank's computing that are idle because torch has no thread for them.

    0 on a GPU, and where another number of threads was measured. Unless told otherwise, torch has a thread for each
    physical core.
    """
    threads, ranks = record.count("threads"), max(1, record.count("devices") or 1)
    physical, idle = record.amount("environment", "physical_cores"), record.amount("machine", "idle")
    if not record.on_cpu or not threads or threads < 1 or tried(record, "threads"):
        return 0.0
    unused = math.floor(NEARLY + idle * (cores_of_a_rank(record) or 0.0))
    more = max(0, min(unused, math.floor(physical / ranks) - threads))
    return more / (threads + more)


def tried(record: Record, key: str) -> bool:
    """Whether the model alone was measured with another value of this key."""
    return any(key in entry.changes for entry in record.alternatives("model"))


def crowded(record: Record, step: Step) -> bool:
    """Whether workers and the training process together want more cores than a rank has."""
    own, threads = cores_of_a_rank(record), record.count("threads") or 1
    return own is not None and step.workers > 0 and step.workers + (threads if step.cores else 1) > own


def all_steps(record: Record) -> float:
    """The number of steps of the run, measured or not."""
    return sum(record.amount("steps", kind) for kind in ("measured", "profiled", "skipped"))


def of_an_epoch(record: Record, gap: str) -> float:
    """Spread what each epoch's end costs over the steps of a whole epoch, even if the run had fewer."""
    if record.number("ceilings", "between", gap) is not None:  # measured alone
        return 1.0
    steps, batches, interval = all_steps(record), record.number("batches_per_epoch"), record.setting(INTERVAL)
    often = record.whole(EPOCHS) is None or times_an_epoch(interval, batches) > 1
    return steps / batches if batches and 0 < steps < batches and not often else 1.0


def workers_in_vain(record: Record, step: Step) -> tuple[str, str] | None:
    """Why more workers would not load faster, as a sentence, and what to look at; None if they may.

    The training process draws the indices of batches and unpacks what workers send, whatever their number. And where
    several load no faster than one process, they share what holds them.
    """
    if (drawn := share_of(record, "data_wait", SAMPLING)) >= BY_ITSELF:
        why = f"For {percent(min(1.0, drawn))} of that wait the sampler draws the indices of batches; no worker can."
        return why, f"More workers would not help: {CHEAPER}."
    if not step.workers:
        return None
    used, one = record.number("main_used", "data_wait"), record.number("ceilings", "loading", "seconds")
    several = min(step.workers, cores_of_a_rank(record) or 1) >= 2
    rates = (step.loader.median, step.loader.high) if step.loader else (0.0, 0.0)
    ratio, most = (rate * (one or 0.0) / step.images for rate in rates)  # times as fast as one process
    if 0 < most < APART:
        they = "1 worker loads" if step.workers == 1 else f"{step.workers} workers load"
        why = f"{they} {1 / ratio:.1f} times as slowly as the training process alone: sending batches takes so long."
        return why, "Load without workers (num_workers=0), or send few large tensors: stack them in collate_fn."
    if used is not None and used >= BY_ITSELF:
        why = f"For {min(1.0, used):.0%} of that wait the training process computes, not its workers."
        cheaper = f"{CHEAPER}, and " if drawn or not record.items("lines") else ""  # looks saw the sampler, or nothing
        return why, (
            f"More workers would not help: {cheaper}let workers send few tensors, which need little "
            "unpacking, or load without workers (num_workers=0) where samples are quick to make."
        )
    if several and ratio and ratio < SHARED and most < SHARED**2:
        why = f"{step.workers} workers load no faster than one process does."
        share = "what they share, such as a lock, a file or a server"
        if record.setting("engine.iterable") is True:
            share += ", or work that each of them does for all samples before it takes its own"
        return why, f"More workers would not help: look for {share}."
    return None


def times_an_epoch(interval: Any, batches: float | None) -> float:
    """How often validation runs in an epoch: to Lightning a float is a share of it, a whole number counts batches."""
    if isinstance(interval, bool) or not isinstance(interval, (int, float)) or interval <= 0:
        return 1.0
    if isinstance(interval, float):
        return max(1.0, 1 / interval)
    return max(1.0, math.floor(batches / interval)) if batches else 1.0


def start_share(record: Record) -> float | None:
    """What the first step took beyond a usual one (compiling, autotuning), as a share of all steps of the run."""
    first, usual = record.number("first_step_seconds"), record.number("step_seconds", "total")
    count = all_steps(record)
    if not first or not usual or count < 1:
        return None
    extra = max(0.0, first - usual)
    return extra / (extra + count * usual)


def operations_of(record: Record) -> float:
    """How many differentiable operations a mean step makes; 0 if unknown."""
    return record.amount("operations", "count") / max(1.0, sum(record.amounts_of("steps").values()))


def costliest(record: Record, phase: str) -> str:
    """A sentence on the operations that take most of a phase, each a tenth of it or more; empty without any.

    Also on a GPU, whose host only launches them.
    """
    if not record.on_cpu:
        return ""
    shares = record.amounts_of("costliest", phase).items()
    named = [f"{name} ({percent(min(1.0, share))})" for name, share in shares if share >= COSTLY]
    return f" Costliest there: {listed(named[:NAMED])}." if named else ""


def many_operations(record: Record, step: Step) -> tuple[float, float]:
    """How many differentiable operations a step makes, and the seconds that they take however small they are.

    Zeros where these are few, or on a GPU, whose host runs ahead.
    """
    count = operations_of(record)
    forward, backward = (count * record.amount("operations", phase) for phase in ("forward", "backward"))
    spent = {phase: record.seconds(phase) for phase in ("forward", "backward", "other")}
    # Some have no backward pass: their results are only logged.
    seconds = min(forward, spent["forward"] + spent["other"]) + min(backward, spent["backward"])
    notable = record.on_cpu and count >= MANY and seconds >= FIXED * step.seconds
    return (count, seconds) if notable else (0.0, 0.0)


def spent_in(record: Record, step: Step, phase: str) -> float:
    """Seconds of a step that a phase costs: an update on a GPU, say, not what its host does there.

    The host may wait there for all that it has queued before. While it copies a batch, the device may also idle.
    """
    host, device = (record.number(of, phase) for of in ("step_seconds", "device_seconds"))
    if device is not None and phase != "transfer":
        return device
    return max(device or 0.0, min(host or 0.0, (device or 0.0) + step.spare))


def waits_for_gpu(record: Record, phase: str) -> float:
    """Seconds of a step in which the host waits there for its GPU, as the trace shows."""
    syncs = record.entries("trace_evidence", "syncs")
    return sum(max(0.0, amount(one.get("seconds"))) for one in syncs if one.get("phase") == phase)


def aside(record: Record) -> dict[str, float]:
    """Seconds of each phase in which rank 0 waits for other ranks, or keeps them waiting; in a mean step."""
    both = [record.amounts_of("ranks", "first", kind) for kind in ("waits", "extra")]
    return {phase: sum(max(0.0, one.get(phase, 0.0)) for one in both) for phase in PHASES}


def preparing(record: Record) -> float:
    """Seconds of a step in which a CPU prepares batches: scales, augments."""
    return sum(record.seconds(phase) for phase in PREPARING)


def faster_precision(record: Record) -> str | None:
    """The precision in which this hardware computes faster; None if it is already used, or there is none.

    Mixed precision leaves double weights as they are.
    Tensor cores came with compute capability 7, those for bfloat16 with 8; of processors, those whose instructions
    multiply bfloat16. Without them numbers of 16 bits are emulated.
    """
    if not record.has("trainer.precision"):
        return None
    bits, *_ = str(record.setting("trainer.precision")).partition("-")
    if bits == "64":
        return "32-true"
    if record.text("weights") == "float64":
        return None
    if record.on_cpu:
        fast = record.flag("environment", "cpu_bfloat16")
        return {"32": "bf16-mixed"}.get(bits) if fast else {"16": "32-true", "bf16": "32-true"}.get(bits)
    capability = gpu_capability(record)
    major = as_number(capability[0]) if capability else None
    if major is None or major < TENSOR_CORES:
        return None
    return {"32": "bf16-mixed"}.get(bits) if major >= BFLOAT16 else {"32": "16-mixed", "bf16": "16-mixed"}.get(bits)


def gpu_capability(record: Record) -> list[Any]:
    """The compute capability of the CUDA device that is trained on; empty for another device."""
    return [] if record.on_cpu else record.items("environment", "gpu_capability")


def accumulated(record: Record) -> int:
    """Batches whose gradients are summed up for an update."""
    return max(1, record.whole(ACCUMULATE) or 1)


def scaling(record: Record) -> tuple[str, ...]:
    """Overrides that scale the learning rate with the images of an update; none if it is scaled, or cannot be."""
    size = record.whole(BATCH_SIZE)
    if not size or record.setting("model.lr_scaling") != "none" or not record.has("model.lr_batch_size"):
        return ()
    images = size * max(1, record.count("world_size") or 1) * accumulated(record)
    return ("model.lr_scaling=linear", f"model.lr_batch_size={images}")


def enlarged(record: Record) -> float:
    """How many times as many pixels the network computes on as a typical image has; 1 if unknown."""
    stored, used = (_pixels(record, *path) for path in (("image_size", "stored"), ("ceilings", "image_size")))
    used = used or _pixels(record, "image_size", "given")
    return used / stored if stored and used else 1.0


def fitting_size(record: Record) -> int | None:
    """The ``data.size`` that fits typical images, a multiple of 32; None unless the run's is far larger."""
    size, (stored, given) = record.whole(SIZE), (_pixels(record, "image_size", one) for one in ("stored", "given"))
    if not size or not stored or not given or given < FAR_BEYOND * stored:
        return None
    fitting = max(1, math.ceil(math.sqrt(stored) / STRIDE)) * STRIDE
    return fitting if fitting < size else None


def made_up(record: Record, step: Step) -> float:
    """Seconds of computing per step on pixels that enlarging added: measured, or by their number."""
    if (times := enlarged(record)) < FAR_BEYOND:
        return 0.0
    smaller = record.alternative("model", SIZE, fitting_size(record))
    faster = smaller.rate.median / step.model.median if smaller and step.model else times
    return (step.compute - step.per_step) * step.images * max(0.0, 1 - 1 / faster)


def _pixels(record: Record, *path: str) -> float | None:
    height, width = (*record.amounts(*path), 0.0, 0.0)[:2]
    return height * width if height > 0 < width else None


def too_low(record: Record) -> str | None:
    """A ceiling that must be wrong, as training was clearly faster: beyond both intervals, or by a fifth; else None.

    ``joint`` is computed from the others, and as uncertain as the less certain of them.
    """
    measured = record.number("images_per_second", "low") or record.number("images_per_second", "median")
    if measured and (step := step_of(record)):  # where a few steps wait long, most are faster than the loader
        measured = min(measured, 1 / step.length)
    rates = {name: rate for name in ("loader", "model", "transfer") if (rate := record.rate(name))}
    wide = max((rates[name].high / rates[name].median for name in ("loader", "model") if name in rates), default=1.0)
    highs = {name: rate.high for name, rate in rates.items()}
    if joint := record.number("ceilings", "joint"):
        highs["joint"] = joint * wide
    lowest = min(highs, key=lambda name: highs[name], default=None)
    middles = {name: rate.median for name, rate in rates.items()} | ({"joint": joint} if joint else {})
    if lowest is None or not measured:
        return None
    least = min(middles, key=lambda name: middles[name])
    return lowest if measured > ABOVE * highs[lowest] else least if measured > FAR_ABOVE * middles[least] else None


def sent_whole(record: Record) -> tuple[str, str] | None:
    """That workers send far more memory than a batch holds, as a sentence, and what to do."""
    held, kept = record.amount("batch_bytes"), record.amount("batch_storage_bytes")
    if not record.count("num_workers") or kept < max(SENT * held, LARGE):
        return None
    return (
        f" Workers send {size(kept)} for each batch of {size(held)}: its tensors are slices of larger ones.",
        "Copy a slice with .clone() in the data set or collate_fn: a worker sends the whole tensor that it is from.",
    )


def advice_on_hyperparameters(record: Record) -> str:
    """A sentence on what checkpoints hold beside weights and the optimizer's state; empty if little."""
    sizes = {name: amount(value) for name, value in record.mapping("hyperparameters").items()}
    if not sizes:
        return ""
    names = ", ".join(f'"{name}"' for name in sorted(sizes, key=lambda name: -sizes[name]))
    held = f" Each holds {size(sum(sizes.values()))} of hyperparameters"
    return f"{held}: self.save_hyperparameters(ignore=[{names}]) leaves them out."
