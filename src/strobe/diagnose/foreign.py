"""Findings about an attached training: what to write in its script, in place of Strobe's overrides."""

import json
from collections.abc import Sequence
from dataclasses import replace

from strobe.diagnose.candidates import WORKERS, staying
from strobe.diagnose.cores import lost_cores, untried_workers
from strobe.diagnose.predict import Step, without_waiting
from strobe.diagnose.rules import Finding
from strobe.diagnose.symptoms import sent_whole, worker_limit, workers_in_vain
from strobe.overrides import split
from strobe.records.run import Record

_CALLS = {  # by the override's group, or the override itself
    "engine": "DataLoader(..., {})",
    "data": "DataLoader(..., {})",
    "trainer": "Trainer({})",
    "model.fused": "Optimizer(..., {})",
    "model.channels_last=true": "model.to(memory_format=torch.channels_last)",
    "model.channels_last=false": "model.to(memory_format=torch.contiguous_format)",
    "model.compile=true": "trainer.fit(torch.compile(model))",
    "model.compile=false": "without torch.compile",
    "threads": "torch.set_num_threads({})",
    "environment": "{} before the command",
    "matmul_precision": "torch.set_float32_matmul_precision({})",
}
_WORDS = {  # what only this application has, and what there is for any training
    "No alternative was measured: look at": "Look at",
    "other work on the items": "the data set's items",
    "val_check_interval=None": "val_check_interval=1.0",
    "Scaling the images": "Preparing batches (transfer hooks)",
    "Scaling and augmenting": "Preparing batches (transfer hooks)",
    "scaling and augmenting": "preparing batches (transfer hooks)",
    "time to decode an image": "time to make a sample",
    "profiler=trace": "strobe run --trace",
    "profiler=python names": "py-spy dump names",
    "with trainer.limit_val_batches": "with Trainer(limit_val_batches=...)",
}
_OF_A_LOOP = {  # of a loop that a script writes itself
    "strobe run --trace": "strobe.watch(..., trace=True)",
    " (transfer hooks)": "",
    "log tensors (self.log takes them), and call": "call",
    "The Trainer's loop": "Code around the update",
    "time outside all phases": "what the loop does around the update",
    "ode outside all phases": "ode around the update",
    "when an epoch starts or ends: new samplers": "between epochs: a validation, checkpoints, new samplers",
}
_SEEN = {"The forward pass": "Code before the backward pass", "the forward pass": "code before the backward pass"}
_UNSEEN = {"The forward pass": "Computing", "the forward pass": "the forward and the backward pass"}
HANDED = 1e-3  # seconds: handing a worker's batch over takes about as long
QUICK = (
    "Workers would not help, as handing a batch over takes about as long. Let the data set make a whole batch at once "
    "(__getitems__), draw batches from one tensor, or use larger ones."
)
MORE = 1.25  # times as many workers: a proposal of fewer would be about noise
UNSEEN = "backward unseen"  # what ``settings.loop`` is then
BY_WORKER = "An IterableDataset must then share its samples among the workers: see torch.utils.data.get_worker_info."


def is_foreign(record: Record) -> bool:
    """Whether this is an attached training, whose script takes no overrides."""
    return record.text("script") is not None


def spoken(finding: Finding, record: Record, step: Step) -> Finding:
    """The finding without overrides, which the script does not take, and with bounds if nothing was measured."""
    advice, predicted, overrides = finding.advice, finding.predicted_speedup, finding.overrides
    if finding.cause == "loader":
        limit = worker_limit(record, step)
        more = limit and limit.workers >= MORE * max(1, step.workers) and workers_in_vain(record, step) is None
        if not step.workers and step.wait * step.images < HANDED:
            advice, overrides = QUICK, ()
        elif limit and more and not overrides and record.has(WORKERS) and not lost_cores(record, step):
            overrides = (f"{WORKERS}={limit.workers}", *staying(record, step))
            _, copied = sent_whole(record) or ("", "")
            advice = f"{copied} {untried_workers(record, limit.workers)}".strip()
        predicted = without_waiting(step) if overrides else predicted
    if overrides:
        advice += f" Write {' and '.join(calls(overrides))}."
        advice += f" {BY_WORKER}" * (finding.cause == "loader" and record.setting("engine.iterable") is True)
    others = tuple(
        replace(one, advice=in_words(f"{one.advice} Write {' and '.join(calls(one.overrides))}.", record), overrides=())
        for one in finding.remedies
    )
    return replace(
        finding,
        remedies=others,
        title=in_words(finding.title, record),
        evidence=in_words(finding.evidence, record),
        advice=in_words(advice, record),
        overrides=(),
        changes=overrides,
        predicted_speedup=predicted,
    )


def in_words(text: str, record: Record) -> str:
    """The text without the names of this application's settings, and without those of a Trainer's phases in a loop."""
    loop, unit = record.setting("loop"), record.text("unit") or "images"
    text = text.replace("images/s", f"{unit}/s")
    words = _WORDS | ((_OF_A_LOOP | (_UNSEEN if loop == UNSEEN else _SEEN)) if loop else {})
    if record.setting("unasked") is True:
        words.pop("strobe run --trace", None)
    for ours, theirs in words.items():
        text = text.replace(ours, theirs)
    return text


def calls(overrides: Sequence[str]) -> list[str]:
    """Overrides as Python, those of one call together: ``engine.num_workers=4``: ``DataLoader(..., num_workers=4)``."""
    arguments_of: dict[str, list[str]] = {}
    for override in overrides:
        key, _ = split(override)
        call = next((_CALLS[name] for name in (override, key, key.partition(".")[0]) if name in _CALLS), "{}")
        arguments_of.setdefault(call, []).append("=".join(argument(override)) if "." in key else argument(override)[1])
    return [call.format(", ".join(arguments)) for call, arguments in arguments_of.items()]


def argument(override: str) -> tuple[str, str]:
    """The name and the value of an override, as they are written in Python."""
    key, typed = split(override)
    name = key.rpartition(".")[2]
    if override == "model.fused=foreach":
        return "foreach", "True"
    try:
        return name, repr(json.loads(typed))
    except ValueError:  # a text
        return name, json.dumps(typed)
