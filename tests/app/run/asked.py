"""``train.py``, to which a signal is sent as soon as one of its ranks reaches a stage, in which one may hang."""

import atexit
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

STAGE, NUMBER, RANK = os.environ["STAGE"], int(os.environ["SIGNAL"]), os.environ.get("TO_RANK", "0")
HANGS = os.environ.get("HANGS", "").split()  # a rank, and where: in Python, in a collective, asking the common store
CLASSIFIER = "strobe.app.model.classifier:ImageClassifier"
PLACES = {  # where a stage begins, and how often that is reached before
    "building": ("strobe.app.build.instantiate:build_data", 0),
    "sanity": (f"{CLASSIFIER}.validation_step", 0),
    "first": (f"{CLASSIFIER}.training_step", 0),
    "training": (f"{CLASSIFIER}.training_step", 3),
    "validation": (f"{CLASSIFIER}.validation_step", 2),
    "checkpoint": ("lightning.pytorch:Trainer.save_checkpoint", 0),
    "test": (f"{CLASSIFIER}.test_step", 0),
    "ceilings": ("strobe.app.run.ceilings:measure_model", 0),
    "report": ("strobe.attach.record:write_report", 0),
}


def ask() -> None:
    if os.environ.get("LOCAL_RANK", "0") == RANK:
        if "ASKED" in os.environ:
            Path(os.environ["ASKED"]).touch()
        os.kill(0 if "TO_GROUP" in os.environ else os.getpid(), NUMBER)


def hang() -> None:
    """For longer than anybody waits."""
    import torch.distributed as dist

    rank, where = HANGS
    if os.environ.get("LOCAL_RANK", "0") != rank:
        return
    if where == "collective":
        dist.barrier()
    if where == "store":
        dist.distributed_c10d._get_default_store().get("what nobody says")
    time.sleep(1000)


class Importing:
    """Asks when torch is imported."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "torch" and STAGE == "import":
            ask()


def arrange(place: str, before: int) -> None:
    """Ask at the beginning of a function's call, after some others."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    function, calls = getattr(owner, name), 0

    def asking(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == before + 1:
            ask()
            if HANGS:
                hang()
        return function(*given, **named)

    setattr(owner, name, asking)


if STAGE == "exit":
    atexit.register(ask)
sys.meta_path.insert(0, Importing())  # type: ignore[arg-type]
if STAGE in PLACES:
    arrange(*PLACES[STAGE])
application = Path(__file__).parents[3] / "train.py"
# Not by runpy, which would change sys.argv[0]: Lightning starts the other ranks with that.
exec(compile(application.read_text(), application, "exec"), {"__name__": "__main__"})
