"""Which lines of the user's own code training is in."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, default_collate
from torchvision.datasets import FakeData
from torchvision.transforms import ColorJitter, Compose, ToTensor

from strobe.callbacks import lines
from strobe.callbacks.columns import (
    BETWEEN,
    COLLATING,
    LOGGING,
    THREAD,
)
from strobe.callbacks.frames import outwards, user_line, user_lines
from strobe.callbacks.lines import Lines
from strobe.callbacks.steps import StepRecorder
from support.fitting import SAMPLES, Model, fit, trainer_with
from support.looks import often
from support.processes import wait_for
from support.steps import recorder

__all__ = ["often", "recorder"]


def pause() -> None:
    time.sleep(0.02)


class Pausing(Model):
    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        pause()
        return super().training_step(batch)


def test_the_line_in_which_a_phase_is_spent_is_told_and_not_that_of_the_script(recorder: StepRecorder) -> None:
    fit(recorder, model=Pausing(), max_epochs=2)
    assert recorder.step_log is not None
    found = recorder.step_log.threads.lines()
    first = found[0]
    assert (first["phase"], first["function"], Path(first["file"])) == ("forward", "pause", Path(__file__))
    assert Path(__file__).read_text().splitlines()[first["line"] - 1] == "    time.sleep(0.02)"
    assert 0.5 < first["share"] <= 1
    own = {line["function"] for line in found if line["file"]}  # others are default_collate's
    assert own <= {"pause", "training_step", "validation_step", "configure_optimizers"}


def draw(numbers: NDArray[np.float64]) -> float:
    return float(np.sort(numbers**0.6)[0])


class Drawing(Model):
    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        draw(np.linspace(0, 1, 500_000))
        product = torch.ones(700, 700) @ torch.ones(700, 700)
        return super().training_step(batch) + 0 * product[0, 0]


def test_lines_tell_whether_operations_of_torchs_were_seen_in_them(recorder: StepRecorder) -> None:
    fit(recorder, model=Drawing(), max_epochs=3)
    assert recorder.step_log is not None
    found = [one for one in recorder.step_log.meanwhile()["lines"] if one["phase"] == "forward"]
    assert {one["torch"] for one in found if one["function"] == "draw"} == {False}
    assert True in {one["torch"] for one in found if one["function"] == "training_step"}


def test_looking_ends_with_training_and_leaves_no_thread(recorder: StepRecorder) -> None:
    fit(recorder, model=Pausing())
    looking = [thread for thread in threading.enumerate() if thread.name == "strobe lines"]
    for thread in looking:
        thread.join(10)
    assert not any(thread.is_alive() for thread in looking)


def test_without_a_trainer_the_innermost_line_counts() -> None:
    seen = Lines(lambda: "forward")
    for _ in range(20):
        pause()
    seen.end()
    assert (seen.looks.records()[0]["phase"], seen.looks.records()[0]["function"]) == ("forward", "pause")


def test_what_releases_pythons_lock_for_long_is_not_seen_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that wakes within pandas gets the lock no earlier than where torch makes a batch."""
    monkeypatch.setattr(lines, "EVERY", 0.05)
    table = pandas.DataFrame({"date": pandas.date_range("2016", periods=100, freq="h").astype(str)})

    def features() -> Any:
        dates = pandas.to_datetime(table[:48].date.values)
        columns = (dates.hour / 23, dates.day_of_week / 6, dates.day / 30, dates.day_of_year / 365)
        return np.vstack(columns).T

    seen = Lines(lambda: "data_wait")
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        default_collate([(np.zeros((48, 7)), features()) for _ in range(64)])
    seen.end()
    looks = seen.looks.seen
    batches = sum(count for (_, _, library), count in looks.items() if library == COLLATING)
    assert batches < 0.25 * looks.total()  # it takes 2% of the time


def test_the_lines_of_phases_that_last_long_are_told_apart() -> None:
    def evaluate() -> None:
        time.sleep(0.15)

    began = time.perf_counter()
    seen = Lines(lambda: "forward", lambda: time.perf_counter() - began)
    for step in range(40):
        began = time.perf_counter()
        pause()
        if step % 5 == 0:
            evaluate()
    seen.end()
    assert {one["function"] for one in seen.looks.records()} >= {"pause", "evaluate"}
    late, *_ = seen.looks.late({"forward": 0.035}).records()  # a busy machine may hold a pause up, too
    assert (late["phase"], late["function"]) == ("forward", "evaluate")
    assert late["share"] > 0.9
    assert seen.looks.late({"backward": 0.035}).records() == []
    call, *_ = seen.looks.apart({"forward": 0.035}).records()  # both are called by this function
    assert call["code"] == "evaluate()"
    assert call["share"] > 0.75  # of a long step, in which it pauses first
    assert seen.looks.apart({"backward": 0.035}).records() == []


def test_what_lies_between_steps_is_told_by_its_outermost_call() -> None:
    def inner() -> None:
        time.sleep(0.01)

    def step() -> None:
        inner()

    def evaluate() -> None:
        for _ in range(10):
            inner()
            inner()

    phase = "forward"
    seen = Lines(lambda: phase)
    for number in range(8):
        phase = "forward"
        for _ in range(10):
            step()
        phase = "between"
        if number % 2:
            evaluate()
    seen.end()
    (call, *_) = seen.looks.apart({"forward": 0.1}).records()
    assert (call["phase"], call["code"]) == ("between", "evaluate()")
    assert call["share"] > 0.9


def test_a_comprehension_is_part_of_its_function() -> None:
    def slow() -> list[None]:
        return [time.sleep(0.02) for _ in range(5)]

    seen = Lines(lambda: "forward")
    for _ in range(5):
        slow()
    seen.end()
    assert seen.looks.records()[0]["function"] == "slow"


def test_code_outside_of_functions_is_told_in_words(tmp_path: Path) -> None:
    text = "for _ in range(5):\n    time.sleep(0.02)\n[time.sleep(0.02) for _ in range(5)]"
    seen = Lines(lambda: "forward")
    exec(compile(text, str(tmp_path / "dqn.py"), "exec"), {"time": time})
    seen.end()
    told = {(one["function"], one["line"]) for one in seen.looks.records()}
    assert told >= {("the top-level code of dqn.py", number) for number in (2, 3)}


def test_a_loop_of_the_scripts_own_is_not_where_a_library_loads() -> None:
    """Without workers the loop is on the same stack."""
    data = FakeData(24, (3, 200, 200), transform=Compose([ColorJitter(0.5, 0.5, 0.5, 0.5), ToTensor()]))
    seen = Lines(lambda: "data_wait")
    for _ in DataLoader(data, 4):
        pass
    seen.end()
    functions = [one["function"] for one in seen.looks.records() if one["file"]]
    assert functions[0] == "ColorJitter.forward"
    assert test_a_loop_of_the_scripts_own_is_not_where_a_library_loads.__name__ not in functions


def test_the_line_that_collects_garbage_is_told() -> None:
    def tidy() -> None:
        gc.collect()

    phase = "backward"
    seen = Lines(lambda: phase)
    for _ in range(8):
        tidy()
    phase = "callbacks/Tidy"
    gc.collect()
    seen.end()
    gc.collect()
    (found,) = (line for line in seen.looks.records() if line["phase"] == "garbage_collection")
    assert (found["function"], found["share"]) == ("tidy", 1.0)
    assert Path(__file__).read_text().splitlines()[found["line"] - 1].strip() == "gc.collect()"


def test_collecting_garbage_between_epochs_is_part_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "EVERY", 1e-5)  # seconds
    kept = [[one] for one in range(200_000)]  # which a collection goes through
    seen = Lines(lambda: "between")
    gc.collect()
    seen.end()
    found = [line for line in seen.looks.records() if line["code"] == "gc.collect()"]
    assert [line["phase"] for line in found] == ["between"]
    assert len(kept) == 200_000


def test_the_line_of_another_thread_that_computes_is_told(recorder: StepRecorder) -> None:
    over = threading.Event()

    def asking() -> None:
        while not over.is_set():
            pass

    asker = threading.Thread(target=asking, name="asker")
    waiter = threading.Thread(target=over.wait, name="waiter")
    asker.start()
    waiter.start()
    fit(recorder, model=Pausing(), max_epochs=2)
    over.set()
    asker.join()
    waiter.join()
    assert recorder.step_log is not None
    found = {
        (one["phase"], one["function"]) for one in recorder.step_log.threads.lines() if one["phase"].startswith(THREAD)
    }
    assert found == {(f"{THREAD}asker", "asking")}


@pytest.mark.parametrize("enabled", [True, False])
def test_no_collection_begins_while_stacks_are_read(monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    began: list[bool] = []

    def read() -> dict[int, FrameType]:
        began.append(gc.isenabled() and sys.version_info < (3, 12))  # as allocating a frame could begin one
        return {}

    monkeypatch.setattr(sys, "_current_frames", read)
    if not enabled:
        gc.disable()
    try:
        lines.stacks()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    assert began == [False]


CALLING = """
import gc, sys, threading, time
from strobe.callbacks import frames, lines

def call(depth):
    objects = [{} for _ in range(3)]
    return depth and call(depth - 1)

def look():
    while not over:
        frames.user_line(lines.stacks()[main])

over, main = False, threading.get_ident()
gc.set_threshold(20, 2, 2)
gc.callbacks.append(lambda *_: sum(range(50)))
sys.setswitchinterval(1e-6)
looks = [threading.Thread(target=look) for _ in range(3)]
[one.start() for one in looks]
end = time.monotonic() + 4
while time.monotonic() < end:
    for depth in range(3, 60):
        call(depth)
assert all(one.is_alive() for one in looks)
over = True
"""


def test_a_thread_may_call_and_return_while_its_stack_is_looked_at() -> None:
    """Memory was overwritten where a collection began meanwhile: a crash within seconds, as Python 3.11 is."""
    subprocess.run([sys.executable, "-c", CALLING], check=True)


def test_looks_beside_each_other_and_forks_leave_the_switch_interval_as_it_was() -> None:
    with lines._looking:  # an earlier test's may still look
        usual = sys.getswitchinterval()
    beside = [Lines(lambda: "forward") for _ in range(4)]
    for _ in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child = os.fork()
        if not child:
            os._exit(sys.getswitchinterval() != usual)
        assert os.waitpid(child, 0)[1] == 0
        pause()
    for one in beside:
        one.end()
        one.thread.join()
    with lines._looking:
        assert sys.getswitchinterval() == usual


def test_a_stack_keeps_what_called_a_generator_that_has_yielded_meanwhile() -> None:
    """As a sampler's, which many batches' indices are drawn from."""
    drawing, go_on, drawn = threading.Event(), threading.Event(), threading.Event()

    def draw() -> Iterator[int]:
        drawing.set()
        go_on.wait()
        yield 1

    def ask(generator: Iterator[int]) -> None:
        next(generator)
        drawn.set()

    generator = draw()
    asker = threading.Thread(target=ask, args=(generator,))
    asker.start()
    drawing.wait()
    stack = lines.stacks()[asker.ident or 0]
    go_on.set()
    drawn.wait()
    asker.join()
    names = [frame.f_code.co_name for frame in stack]
    assert names.index("draw") + 1 == names.index("ask")


class Local:
    """What a function holds, such as a batch."""


def test_looks_keep_nothing_alive_that_a_function_held() -> None:
    held: list[weakref.ref[Local]] = []

    def step() -> None:
        local = Local()
        held.append(weakref.ref(local))
        time.sleep(0.05)  # many looks

    looking = Lines(lambda: "forward")
    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # without being disabled, no collection begins
    try:
        for _ in range(12):
            step()
        assert any(one["function"] == "step" for one in looking.looks.records())  # they did look into it
        assert wait_for(lambda: [one() for one in held] == [None] * 12, 60)  # a look may be under way
    finally:
        gc.set_threshold(*thresholds)
        looking.end()


class Preparing(Model):
    """Makes its loader in each epoch, slowly."""

    def train_dataloader(self) -> DataLoader[Any]:
        pause()
        return DataLoader(SAMPLES, 4)


def test_the_line_between_epochs_is_told_from_those_of_steps(recorder: StepRecorder) -> None:
    trainer_with(recorder, max_epochs=5, reload_dataloaders_every_n_epochs=1).fit(
        Preparing(), val_dataloaders=DataLoader(SAMPLES, 4)
    )
    assert recorder.step_log is not None
    found = {(one["phase"], one["function"]) for one in recorder.step_log.threads.lines()}
    assert (BETWEEN, "pause") in found
    assert ("other", "pause") not in found


class Network(torch.nn.Module):
    def forward(self) -> None:
        pause()
        time.sleep(0.02)


def test_a_forward_is_told_with_its_class() -> None:
    seen, network = Lines(lambda: "forward"), Network()
    for _ in range(10):
        network()
    seen.end()
    own = test_a_forward_is_told_with_its_class.__name__  # in which a thread without a core may be looked at often
    assert {one["function"] for one in seen.looks.records()} - {own} == {"pause", "Network.forward"}


def made(source: str, file: str) -> dict[str, Any]:
    """The names of a module whose code says that it is of this file."""
    names: dict[str, Any] = {"sys": sys}
    exec(compile(source, file, "exec"), names)
    return names


def test_a_trainer_of_the_users_own_is_no_lightnings() -> None:
    file = "/home/me/project/trainer/trainer.py"
    train = made("def train(look):\n    return look(sys._getframe())\n", file)["train"]
    assert train(lambda frame: user_lines(outwards(frame)))[-1] == (file, 2, "train")


@pytest.mark.parametrize("package", ["lightning/pytorch", "pytorch_lightning"])
def test_either_lightnings_log_is_told(package: str) -> None:
    look = made("def look(told):\n    return told(sys._getframe())\n", "/there/site-packages/x.py")["look"]
    log = made("def log(look, told):\n    return look(told)\n", f"/there/site-packages/{package}/core/module.py")["log"]
    line, library = log(look, lambda frame: user_line(tuple(outwards(frame))))
    assert library == LOGGING
    assert line is not None
    assert line[0] == __file__
