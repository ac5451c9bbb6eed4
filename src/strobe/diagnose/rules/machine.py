"""The machine: other processes on the same cores, a quota that stops training, memory that grows until none is left."""

from strobe.callbacks.columns import MAPPING
from strobe.diagnose.attribution import seconds_of
from strobe.diagnose.cores import MOST_TAKEN, taken, taken_by_children, taken_by_threads
from strobe.diagnose.predict import NOTABLE, Step, up_to, without
from strobe.diagnose.rules import Finding
from strobe.diagnose.uneven import jump
from strobe.measure.environment import MALLOC
from strobe.overrides import key_of
from strobe.present.format import cores, duration, percent, size
from strobe.records.run import Figure, Record, as_number

BESIDE = "Another library's threads"  # which cost more than is seen; those of workers may do what one would do alone
BLAS = "OPENBLAS_NUM_THREADS"
ALONE = f"{BLAS}=1"
SWAPPED = 1e6  # bytes a second: systems swap out less than this of memory that is not in use
FAULT, HUGE = 5e-6, 4e-4  # core-seconds at most of a page fault, and of one of 2 MB, with giving the memory back
KEPT = [f"{name}={value}" for name, (value, _) in MALLOC.items()]
HOUR, DAY = 3600.0, 86400.0  # seconds: memory that is full within an hour comes first, after a day it does not matter
SEEN = 60.0  # times as long as the growth was seen: what lies further ahead is a guess
LEAST_GROWTH, LEAST_SHARE = 64e6, 0.05  # bytes, and of the first reading: processes grow so much in their first minute
_GROWS = {
    "workers_memory": (
        "The loader workers' memory grows",
        "Look for what the data set keeps of each item: a list, a cache, an open file. Until that is fixed, fewer "
        "workers, or restarting them each epoch (persistent_workers=false), buy time.",
    ),
    "memory": (
        "The training process's memory grows",
        "Look for what each step leaves behind: losses with their graphs (keep loss.detach()), outputs, a metric "
        "that holds all predictions.",
    ),
}


def shared_machine(record: Record, _: Step) -> Finding | None:
    """Other processes, or other virtual machines of the host, took cores that training needed."""
    if not (lost := taken(record)):
        return None
    names = ("own", "others", "stolen", "idle")
    own, others, stolen, idle = (min(1.0, record.amount("machine", name)) for name in names)
    who = "Other processes" if others >= stolen else "Other virtual machines on this host"
    evidence = f"Training waited for a core for {percent(lost)} of its time. Others used {percent(others + stolen)} of "
    evidence += f"the cores, this training {percent(own)}; {percent(idle)} was idle."
    if found := jump(record):
        times = found.steps[1] / found.steps[0]
        evidence += (
            f" From step {found.since:,} on, steps take {times:.1f} times as long: most of it may be since then."
        )
    named = [
        f"{entry.get('name')} (process {entry.get('pid')}) {cores(used)}"
        for entry in record.items("machine", "busiest")
        if isinstance(entry, dict) and (used := as_number(entry.get("cores")))
    ]
    evidence += f" The busiest: {', '.join(named)}." if named else " Which ones is not known: they had ended."
    return Finding(
        "shared_machine",
        f"{who} took {percent(others + stolen)} of the cores",
        evidence,
        "Train again when those processes have ended, or on another machine; these figures hold only while they run.",
        _up_to(lost),
    )


def child_processes(record: Record, step: Step) -> Finding | None:
    """Processes that training started, and that are no loader workers, took cores that it needed."""
    if step.workers or not (lost := taken_by_children(record, step)):
        return None
    used = cores(record.amount("machine", "children") * (step.cores or 1.0))
    return Finding(
        "child_processes",
        f"Processes that this training started take {used} that it needs",
        f"Training waited for a core for {percent(lost)} of its time beside them. None of them loads its "
        "batches: they are a pool, a simulator, an encoder or a logger, of the script's or a library's, or workers for "
        "validation.",
        "Let them do less, or do it less often; start fewer of them, or after training; or use fewer threads.",
        _up_to(lost),
    )


def oversubscription(record: Record, step: Step) -> Finding | None:
    """Another library's threads compete with torch's, or those of loader workers with each other, for the cores."""
    if not (lost := min(MOST_TAKEN, seconds_of("oversubscription", record, step) / (step.total * step.images))):
        return None
    if taken_by_threads(record):
        who = BESIDE
        evidence = (
            "Hardly any other process or worker wants a core meanwhile. Such threads keep a core busy for some time "
            "after each call, and torch's threads wait for one another, so they may cost far more."
        )
    else:
        who, threads = "A library's threads in the loader workers", record.number("worker_threads") or 1.0
        evidence = f"Each worker computes with {threads:.1f} threads at once, and hardly a core is idle."
    known = record.has(f"environment.{BLAS}")
    overrides = (f"environment.{ALONE}",) if known and str(record.setting(f"environment.{BLAS}")) != "1" else ()
    numpys = "" if known else f"NumPy and SciPy: set {ALONE} before the script starts{_proof(record, ALONE)}. "
    return Finding(
        "oversubscription",
        f"{who} cost {percent(lost)} of each step",
        f"What training waits for because of these threads takes {duration(lost * step.seconds)} of each "
        f"{duration(step.seconds)} step. {evidence}",
        f"Give the other library one thread. {numpys}OpenCV: cv2.setNumThreads(0). scikit-learn and others: "
        "threadpoolctl.threadpool_limits(1) around the calls.",
        _up_to(lost),
        overrides,
        partial=who == BESIDE,
    )


def swapping(record: Record, _: Step) -> Finding | None:
    """Memory was swapped to a disk and back: there is too little for this training and everything else that runs."""
    swapped, seconds = (record.amount("machine", name) for name in ("swapped_bytes", "seconds"))
    choked, idle = record.number("machine", "choked"), record.amount("machine", "idle")
    lost = min(MOST_TAKEN, idle if choked is None else choked)  # a process that waits for memory leaves a core idle
    if not swapped or swapped < SWAPPED * seconds or lost < NOTABLE:
        return None
    evidence = f"{size(swapped)} were swapped in {duration(seconds)}. "
    if choked is None:
        evidence += (
            f"How long processes waited for it is not known on this system; the cores were {percent(idle)} idle."
        )
    else:
        evidence += f"For {percent(choked)} of the time everything that could have run was waiting for memory."
    return Finding(
        "swapping",
        f"Memory is short: {size(swapped / max(seconds, 1e-9))} swapped per second",
        evidence,
        "Use fewer loader workers, smaller batches or a smaller cache, or stop other programs that use memory.",
        _up_to(lost),
        share=lost,
    )


def page_faults(record: Record, step: Step) -> Finding | None:
    """Computing maps memory anew in each step, page by page, which the allocator had given back to the system.

    glibc does so for whatever is larger than 32 MB (M_MMAP_THRESHOLD in mallopt(3)), and for what is free at the end of
    its heap.
    """
    count, kernel = record.amount("page_faults", "count"), record.amount("page_faults", "kernel")
    computing = {phase: record.seconds(phase) for phase in MAPPING}
    core_seconds = sum(seconds * record.amount("cores_used", phase) for phase, seconds in computing.items())
    if not record.on_cpu or not core_seconds or record.flag("environment", "default_malloc") is not True:
        return None
    most = HUGE if record.flag("environment", "huge_pages") else FAULT
    share = min(kernel, most * count / core_seconds)
    if (seconds := share * sum(computing.values())) < NOTABLE * step.seconds:
        return None
    variables, overrides = " ".join(KEPT), tuple(f"environment.{one}" for one in KEPT)
    how = (
        f": set {variables} before the script starts{_proof(record, variables)}. Or start it with jemalloc or TCMalloc"
    )
    if record.has("keep_memory"):
        how, overrides = "", ("keep_memory=true",)
    return Finding(
        "page_faults",
        f"Memory that is mapped anew takes {percent(seconds / step.seconds)} of each step",
        f"Each step has {count:,.0f} page faults: the memory of large results goes back to the system when they are "
        f"freed, and the kernel clears it for the next ones. This is {percent(share)} of what computing costs.",
        f"Let malloc keep freed memory{how}. Training may then hold more memory.",
        without(step, compute=seconds),
        overrides if all(record.has(key_of(override)) for override in overrides) else (),
        partial=True,
    )


def quota(record: Record, _: Step) -> Finding | None:
    """The container has used up its CPU quota, and is paused until it gets more."""
    share = record.amount("machine", "throttled")
    if share < NOTABLE:
        return None
    return Finding(
        "quota",
        f"The container's CPU quota was used up for {percent(share)} of the time",
        f"Linux paused its processes for {percent(share)} of the training (throttled_usec of the cgroup's cpu.stat).",
        "Give the container more cores (docker run --cpus, resources.limits.cpu), or use fewer threads.",
        _up_to(lost := min(share, MOST_TAKEN)),
        share=lost,
    )


def _proof(record: Record, variables: str) -> str:
    """The end of a sentence: the command that proves what these variables of the environment bring to a script."""
    command = record.text("script") or " -- "
    return "" if " -- " in command else f", and strobe duel -- {command} -- {variables} {command} proves what it brings"


def _up_to(lost: float) -> Figure:
    """Between no gain and all that was lost; no more is known."""
    return up_to(Figure(*[1 / (1 - lost)] * 3))


def growing_memory(record: Record, step: Step) -> list[Finding]:
    """Memory that grows steadily: by how much, and when none will be left. It does not slow training down."""
    free, findings = record.number("environment", "memory_free_bytes"), []
    for name, (title, advice) in _GROWS.items():
        first, last, pace, seconds = (
            record.amount("memory_growth", name, key)
            for key in ("first_bytes", "last_bytes", "bytes_per_second", "seconds")
        )
        notable = last - first >= max(LEAST_GROWTH, LEAST_SHARE * first)
        if not record.flag("memory_growth", name, "steady") or not notable or pace <= 0:
            continue
        count = max(1, step.workers) if name == "workers_memory" else 1
        left = free / (pace * count) if free is not None else 0.0
        if left > DAY or (left > SEEN * seconds and taken(record)):  # beside others a first minute takes longer
            continue
        who = "The largest worker" if count > 1 else "The worker" if name == "workers_memory" else "It"
        evidence = f"{who} grew steadily from {size(first)} to {size(last)} in {duration(seconds)}."
        if free is not None:
            evidence += f" At this pace the {size(free)} that are free now last {duration(left)}."
        findings.append(
            Finding(
                "growing_memory",
                f"{title} by {size(pace * count)} a second",
                evidence,
                advice,
                Figure(1.0, 1.0, 1.0),
                subject=name,
                lost=1.0 if left < min(HOUR, SEEN * seconds) else 0.0,  # all of training, when it ends the run
            )
        )
    return findings
