"""What steps compute on, as their rows tell: cores, threads, memory that is mapped, garbage, and which optimizer."""

import gc
import mmap
import threading
import time
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from strobe.callbacks import threads
from strobe.callbacks.steps import StepRecorder
from strobe.records.steps import measure_steps
from support.fitting import Model, Standstill, fit, standstill
from support.steps import column, recorder, rows, seconds

__all__ = ["recorder", "standstill"]


def test_a_phase_that_sleeps_uses_no_core_and_one_that_computes_uses_one(recorder: StepRecorder) -> None:
    class Sleeping(Model):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            time.sleep(0.02)
            return super().training_step(batch)

    class Computing(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass

    fit(recorder, Computing(), model=Sleeping(), max_epochs=4)
    asked = [row for row in rows(recorder) if row["cpu_forward"]]
    assert [int(row["step"]) for row in asked] == [0, 3, 6, 10, 12, 17, 18]  # each seventh, and the first of an epoch
    assert all(float(row["cpu_forward"]) < 0.02 <= float(row["cpu_callbacks"]) for row in asked)
    used = measure_steps(recorder.path)["cores_used"]
    assert used["forward"] < used["callbacks"]  # a share of a core that a busy machine makes smaller


def test_page_faults_of_what_computes_are_counted(recorder: StepRecorder) -> None:
    def map_anew(pages: int) -> None:
        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for page in range(pages):
                memory[page * mmap.PAGESIZE] = 1

    class Maps(Model):
        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            map_anew(1000)
            return super().training_step(batch)

    class MapsMore(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            map_anew(20_000)

    fit(recorder, MapsMore(), model=Maps(), max_epochs=4)
    asked = [row for row in rows(recorder) if row["page_faults"]]
    assert [int(row["step"]) for row in asked] == [0, 3, 6, 10, 12, 17, 18]
    assert all(1000 <= int(row["page_faults"]) < 20_000 for row in asked)
    found = measure_steps(recorder.path)["page_faults"]
    assert 1000 <= found["count"] < 20_000
    assert 0 < found["kernel"] < 1


@pytest.mark.parametrize("turns", [True, False])
def test_steps_of_another_optimizer_are_not_like_those_that_are_followed(
    recorder: StepRecorder, standstill: Standstill, turns: bool
) -> None:
    """The second step is a discriminator's, the third one a generator's, which takes four times as long."""

    class InTurns(Model):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: list[torch.Tensor], number: int) -> None:  # type: ignore[override]
            mine = turns and number % 3 == 2
            standstill.nap(4 if mine else 1)
            optimizer = self.optimizers()[mine]
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch))
            optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), lr=0.01) for _ in range(2)]

    fit(recorder, model=InTurns(), max_epochs=2)
    assert column(recorder, "optimizers") == ([1, 1, 2] * 4 if turns else [1] * 12)
    like = measure_steps(recorder.path)["like"]
    if turns:
        assert [like[name]["forward"] for name in ("first", "last")] == pytest.approx([1 / 3, 2 / 3])
    else:
        assert like == {"first": None, "last": None}


class Works(Model):
    """Computes in its step, on the thread that trains, or on another one that it waits for; or collects garbage."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        if self.how == "garbage":
            gc.collect()
        elif self.how == "here":
            burn()
        else:
            other = threading.Thread(target=burn)
            other.start()
            other.join()
        return super().training_step(batch)


def burn() -> None:
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize(("how", "alone"), [("here", True), ("elsewhere", False)])
def test_the_thread_that_trains_is_told_from_others(recorder: StepRecorder, how: str, alone: bool) -> None:
    fit(recorder, model=Works(how))
    row = rows(recorder)[3]
    assert float(row["cpu_forward"]) >= 0.05
    assert (float(row["main_forward"]) >= 0.05) == alone


def test_collections_of_garbage_are_timed_but_for_those_of_callbacks(recorder: StepRecorder) -> None:
    class Collects(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            gc.collect()

    before = list(gc.callbacks)
    gc.disable()
    try:
        fit(recorder, model=Works("garbage"))
        theirs = seconds(recorder, "garbage_collection")
        fit(recorder, Collects())
    finally:
        gc.enable()
    assert min(theirs) > 0
    assert seconds(recorder, "garbage_collection") == [0] * 6
    assert gc.callbacks == before


def test_threads_that_compute_beside_training_are_named_also_when_they_have_ended(
    recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "EVERY", 0)

    class Watches(Callback):
        def on_train_start(self, *_: Any) -> None:
            self.over = threading.Event()
            self.thread = threading.Thread(target=self.watch, name="watcher")
            self.thread.start()

        def watch(self) -> None:
            while not self.over.is_set():
                pass

        def on_train_end(self, *_: Any) -> None:
            self.over.set()
            self.thread.join()

    fit(Watches(), recorder, model=Works("here"))
    busiest = recorder.step_log.threads.cores()[0]
    assert busiest["name"] == "watcher"
    assert 0.05 < busiest["cores"] <= 1.1
