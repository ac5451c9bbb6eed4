"""Computing that keeps the cores idle: it sleeps, waits for Python's lock, or is the work of one thread."""

from strobe.callbacks.columns import JACOBIANS, LOGGING, PARAMETRIZING, SAVING, THREAD
from strobe.diagnose.attribution import (
    COMPUTING,
    PLACES,
    around_update,
    cores_to_compute,
    garbage_seconds,
    held,
    lonely,
    stalls,
)
from strobe.diagnose.cores import threads_beside
from strobe.diagnose.looks import in_functions, in_libraries, in_python, most_is_at
from strobe.diagnose.predict import NOTABLE, Step, up_to, without
from strobe.diagnose.rules import NAMES_LINES, Finding
from strobe.diagnose.symptoms import PREPARING, costliest, many_operations
from strobe.present.format import cores, duration, percent
from strobe.records.run import Record

MOSTLY = 0.75  # of a phase
_INSTEAD = {
    LOGGING: "Log fewer values, in fewer steps: each call costs the same, whatever log_every_n_steps is.",
    JACOBIANS: "Such a matrix takes a backward pass for each output, or a forward pass for each input. Where only its "
    "products with vectors are needed, torch.func.vjp() and jvp() take one pass for each of them.",
    SAVING: "Save in fewer steps: every few minutes is often enough. Where the best of many is to be kept, compare a "
    "mean of many steps.",
    PARAMETRIZING: "Compute each parametrized weight once a step: use the module within "
    "torch.nn.utils.parametrize.cached(). The backward pass then goes through it once, too.",
}
_ALONE = (  # why a phase is on one thread, and what to do
    "That is Python code (a loop, a metric that is not vectorised), or operations without a parallel kernel, such as "
    "the random numbers of dropout.",
    f"Replace such lines with a few operations on whole tensors.{NAMES_LINES}",
)
_ALONE_BACKWARD = (
    "Its operations have no parallel kernel, or are too small for one. Each operation of the forward pass adds some; "
    "those of a slice fill a whole tensor with zeros.",
    "Replace loops over time steps, samples or slices in the forward pass by a few operations on whole tensors.",
)
_OUTSIDE = (  # what is said of the function, of its time, and what to do
    ", but not in torch",
    ", in lines where no operation of torch's was seen: NumPy, another library, or Python itself computes there, "
    "usually on one core.",
    "Do it once before training where it does not change, or in the data set, whose workers do it beside training. "
    "What has to be in each step may need less of the data, or be a few operations of torch.",
)
_SELDOM = (
    "",
    " on average; only a few steps do it, and these take longer.",
    "Do it less often, on less of the data, or with cheaper operations.",
)
GARBAGE = 0.03  # of the step, for garbage collection


def stalled(record: Record, step: Step) -> list[Finding]:
    """A computing phase that hardly uses a core: it sleeps, or waits for a file, a lock or a server."""
    findings = []
    for phase, seconds in stalls(record, step).items():
        if seconds >= NOTABLE * step.seconds:
            name, used = COMPUTING[phase], record.amount("cores_used", phase)
            whole = record.seconds(phase)
            findings.append(
                Finding(
                    "stalled",
                    f"{name[0].upper()}{name[1:]} is idle for {percent(seconds / step.seconds)} of each step",
                    f"It takes {duration(whole)} of each {duration(step.seconds)} step, but uses only {cores(used)}.",
                    f"Find what it waits for: a file, a lock, a server, a sleep.{NAMES_LINES}",
                    without(step, compute=seconds),
                    subject=phase,
                )
            )
    return findings


def background_thread(record: Record, step: Step) -> Finding | None:
    """Other threads of this process compute while the training thread waits, most likely for Python's lock."""
    lost = sum(held(record, step).values())
    if lost < NOTABLE * step.seconds:
        return None
    name, busiest = threads_beside(record)[0]
    looks = (one for one in record.items("lines") if isinstance(one, dict) and one.get("phase") == f"{THREAD}{name}")
    runs = next((f", which {one.get('library')} runs," for one in looks if not one.get("line")), "")
    return Finding(
        "background_thread",
        f"Other threads of the process hold training up for {percent(lost / step.seconds)} of each step",
        f"The thread {name}{runs} uses {cores(busiest)}. The training thread neither computes nor waits for a core for "
        f"{duration(lost)} of each {duration(step.seconds)} step. It waits for what that thread makes, or "
        "for Python's lock: only one thread at a time can run Python, so a busy one delays every operation.",
        f"Move the work of {name} to a process of its own, or let it do less; one that waits should not ask in a loop.",
        up_to(without(step, compute=lost)),
    )


def single_thread(record: Record, step: Step) -> list[Finding]:
    """A computing phase that keeps only one of torch's threads busy: Python code, or serial operations.

    The fixed cost of a step belongs to ``small_batch``.
    """
    findings, many = [], cores_to_compute(record)
    for phase, serial in lonely(record).items():
        seconds, name = max(0.0, serial - garbage_seconds(record)), PLACES[phase]  # which is of one thread too
        lost = seconds * (1 - 1 / many)
        if lost < NOTABLE * step.seconds or (phase in PREPARING and record.text("script") is not None):
            continue  # of a script ``transfer`` tells more
        whole = record.number("step_seconds", phase) or seconds
        what = f"{name[0].upper()}{name[1:]}" if seconds > MOSTLY * whole else f"{percent(seconds / whole)} of {name}"
        why, advice = _ALONE_BACKWARD if phase == "backward" else _ALONE
        findings.append(
            Finding(
                "single_thread",
                f"{what} uses one of {many:g} cores",
                f"It takes {duration(whole)} of each {duration(step.seconds)} step, {duration(seconds)} of that on one "
                f"thread. {why}{costliest(record, phase)}",
                advice,
                up_to(without(step, compute=lost)),
                subject=phase,
            )
        )
    return findings


def small_operations(record: Record, step: Step) -> Finding | None:
    """A step makes so many differentiable operations that what each costs, however small, is a large part of it."""
    count, seconds = many_operations(record, step)
    if not count:
        return None
    return Finding(
        "small_operations",
        f"A step makes {count:,.0f} operations, whose fixed cost alone is {percent(seconds / step.seconds)} of it",
        f"Here an operation costs at least {duration(seconds / count)}, however small its tensors are: "
        f"{duration(seconds)} of each {duration(step.seconds)} step.{most_is_at(record, 'operations')}",
        "A loop over samples, time steps or pairs makes so many: replace it by a few operations on whole tensors. If "
        "they are a deep model's layers, or a recurrent one's time steps, use larger batches or torch.compile.",
        up_to(without(step, compute=seconds)),
    )


def library_call(record: Record, step: Step) -> list[Finding]:
    """A computing phase is notably long in a library that is not torch, as looks at the training thread show."""
    return [
        Finding(
            "library_call",
            f"{percent(seconds / step.seconds)} of each step is spent in {name}, which {COMPUTING[phase]} calls",
            f"It takes {duration(seconds)} of each {duration(step.seconds)} step, on top of what the network computes.",
            _INSTEAD.get(
                name,
                f"Call {name} less often, or outside training: a metric once an epoch, a copy once in many steps. Or "
                "do the same with a few operations on whole tensors.",
            ),
            up_to(without(step, compute=seconds)),
            subject=name,
            partial=name != JACOBIANS,  # whose products, which remain, take a part of this
        )
        for name, (phase, seconds) in in_libraries(record).items()
        if seconds >= NOTABLE * step.seconds
    ]


def outside_torch(record: Record, step: Step) -> list[Finding]:
    """A computing phase is notably long in code that is neither torch's nor Python's, such as NumPy's arithmetic.

    What only a few steps do, all of them long, may be torch's: operations are followed in the first steps alone.
    """
    findings, extra = [], record.amount("uneven", "extra_seconds")
    in_long_ones = {one.get("function") for one in record.entries("long_lines")}
    for name, (_, seconds) in in_functions(record).items():
        if seconds < NOTABLE * step.seconds:
            continue
        what, seen, advice = _SELDOM if name in in_long_ones and extra >= MOSTLY * seconds else _OUTSIDE
        findings.append(
            Finding(
                "outside_torch",
                f"{percent(seconds / step.seconds)} of each step is spent in {name}{what}",
                f"It takes {duration(seconds)} of each {duration(step.seconds)} step{seen}",
                advice,
                up_to(without(step, compute=seconds)),
                subject=name,
            )
        )
    return findings


def loop_code(record: Record, step: Step) -> Finding | None:
    """A loop that a script writes itself does much beside the forward pass, the backward pass and the update."""
    if not (seconds := around_update(record, step)):
        return None
    where, but = "code around the update", ", not counting the optimizer's step,"
    advice = "What logs, measures or copies can run once in many steps; what has to be in each can be a few operations "
    if record.setting("updates_itself") is True:  # without an optimizer of torch's
        where, but, advice = (
            "code after the backward pass",
            ", the script's own update included,",
            "Use a few operations ",
        )
    return Finding(
        "loop_code",
        f"{percent(seconds / step.seconds)} of each step is spent in {where}",
        f"Code after the backward pass{but} takes {duration(seconds)} of each {duration(step.seconds)} step.",
        f"{advice}on whole tensors, without .item() and .tolist(); for many weights, torch._foreach_ operations.",
        up_to(without(step, compute=seconds)),
    )


def python_code(record: Record, step: Step) -> list[Finding]:
    """A computing phase is notably long in Python code of the user's own, which holds Python's lock."""
    phases = [one for one in COMPUTING if one != "other" or not around_update(record, step)]
    by_phase = {phase: in_python(record, phase) for phase in (phases if not held(record, step) else ())}
    return [
        Finding(
            "python_code",
            f"{percent(seconds / step.seconds)} of each step is Python code in {COMPUTING[phase]}",
            f"It holds Python's lock for {duration(seconds)} of each {duration(step.seconds)} step; torch's "
            "operations release it.",
            "Replace loops over numbers, lists or texts by a few operations on whole tensors. What does not depend on "
            "the weights can move to the data set, where workers do it meanwhile; what counts or logs, to a few steps.",
            up_to(without(step, compute=seconds)),
            subject=phase,
        )
        for phase, seconds in by_phase.items()
        if seconds >= NOTABLE * step.seconds
    ]


def garbage_collection(record: Record, step: Step) -> Finding | None:
    """Python's garbage collector takes a notable share of the step."""
    seconds = garbage_seconds(record)
    if seconds < GARBAGE * step.seconds:
        return None
    long, measured = record.amount("uneven", "steps"), record.amount("steps", "measured")
    within = record.amount("uneven", "garbage_seconds")
    uneven = f", most of it in {long:.0f} of {measured:.0f} steps" if within > seconds / 2 else ""
    return Finding(
        "garbage_collection",
        f"Python's garbage collection takes {percent(seconds / step.seconds)} of each step",
        f"It takes {duration(seconds)} of each {duration(step.seconds)} step{uneven}.",
        "Call gc.freeze() once training has begun, or gc.disable() and gc.collect() every few hundred steps; leave out "
        "a gc.collect() in each step. Keep fewer Python objects: one array instead of a list of numbers.",
        without(step, compute=seconds),
    )
