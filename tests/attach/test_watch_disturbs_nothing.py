"""What ``strobe.watch`` leaves as it was: training, hooks, the profiler, and a loop in which it fails."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import strobe
from strobe.attach import loops, training
from strobe.callbacks.loop import LEARN, LoopPhases
from strobe.callbacks.rows import StepLog
from support.fitting import Standstill, standstill
from support.foreign import first, loaded
from support.watched import STEPS, Loop, alone, record, rows

__all__ = ["alone", "standstill"]
pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("how", ["train", "accumulate", "two", "closure"])
def test_weights_and_random_numbers_are_as_without(how: str, standstill: Standstill) -> None:
    ended = []
    for watched in (lambda loader: loader, lambda loader: strobe.watch(loader, directory="here", trace=True)):
        loop = Loop(standstill)
        getattr(loop, how)(watched(loop.loader(lambda items: loaded(items, shuffle=True))))
        loops.close()
        ended.append((loop.model.state_dict(), loop.optimizer.state_dict(), torch.get_rng_state()))
    torch.testing.assert_close(ended[0], ended[1], rtol=0, atol=0)
    assert record()["traces"]
    assert all(not parameter._post_accumulate_grad_hooks for parameter in loop.model.parameters())


@pytest.mark.parametrize("begun", [0, 1], ids=["before the loop", "in it"])
def test_a_script_that_uses_the_profiler_itself_keeps_it(
    begun: int, standstill: Standstill, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(standstill)
    theirs = None if begun else torch.profiler.profile()
    for number, batch in enumerate(strobe.watch(loop.loader(), directory="here", trace=True)):
        loop.step(batch)
        if number == 0:
            theirs = theirs or torch.profiler.profile()
            theirs.start()
    assert theirs is not None
    theirs.stop()
    loops.close()
    assert (record()["status"], record()["traces"], len(rows())) == ("completed", [], STEPS)
    assert capsys.readouterr().err.count("Strobe records no trace: the script uses torch.profiler itself.") == 1


def test_an_error_of_its_own_leaves_no_profiler_running_and_no_hook(
    standstill: Standstill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ArithmeticError("Strobe's own")

    loop = Loop(standstill)
    watched = strobe.watch(loop.loader(), directory="here", trace={"wait": 0})
    for number, batch in enumerate(watched):
        loop.step(batch)
        if number == 2:
            assert torch._C._autograd._profiler_enabled()
            monkeypatch.setattr(StepLog, "end_step", fails)
    assert not torch._C._autograd._profiler_enabled()
    loop.train(watched)
    assert not [path for path in Path().iterdir() if path.name != "here"]
    assert all(not parameter._post_accumulate_grad_hooks for parameter in loop.model.parameters())


def test_another_thread_that_asks_for_batches_ends_the_measuring(
    standstill: Standstill, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(standstill)
    batches = iter(strobe.watch(loop.loader(), directory="here"))
    for number in range(STEPS):
        if number <= 3:
            batch = next(batches)
        else:
            with ThreadPoolExecutor(1) as pool:
                batch = pool.submit(next, batches).result()
        loop.step(batch)
    loops.close()
    assert "another thread asks for the batches" in " ".join(capsys.readouterr().err.split())
    assert len(rows()) == 3


def test_hooks_of_an_optimizer_that_comes_late_are_thinned_out(standstill: Standstill) -> None:
    loop = Loop(standstill)
    late = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    for number, batch in enumerate(strobe.watch(loop.loader(), directory="here")):
        loop.step(batch)
        if number == LEARN + 1:
            other = torch.optim.SGD(late.parameters(), lr=0.1)
        if number > LEARN:
            late(first(batch)).square().mean().backward()
            other.step()
    assert sum(bool(one._post_accumulate_grad_hooks) for one in late.parameters()) == 1


def test_a_model_that_swaps_its_parameters_may_do_so(standstill: Standstill) -> None:
    loop, before = Loop(standstill), torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        loop.train(strobe.watch(loop.loader(), directory="here"))
        loop.model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert {one.dtype for one in loop.model.parameters()} == {torch.float64}


def test_named_optimizers_are_not_kept_alive(standstill: Standstill) -> None:
    loop = Loop(standstill)
    loop.train(strobe.watch(loop.loader(), optimizer=loop.optimizer, directory="here"))
    optimizer = weakref.ref(loop.optimizer)
    del loop
    gc.collect()
    assert optimizer() is None


def test_what_is_watched_is_as_its_loader() -> None:
    loader = loaded(TensorDataset(torch.ones(12, 8)))
    watched = strobe.watch(loader)
    assert (len(watched), watched.dataset, watched.sampler) == (3, loader.dataset, loader.sampler)
    with pytest.raises(TypeError, match="no len"):
        len(strobe.watch(batch for batch in loader))
    with pytest.raises(TypeError, match="something to iterate over"):
        strobe.watch(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes torch optimizers, not str"):
        strobe.watch(loader, optimizer="adam")
    with pytest.raises(ValueError, match="trace has no key warm"):
        strobe.watch(loader, trace={"warm": 1})


@pytest.mark.parametrize(
    "broken", [(StepLog, "end_step"), (LoopPhases, "_learn"), (training, "new_directory"), (training, "complete")]
)
def test_its_own_error_is_said_once_and_training_goes_on(
    broken: tuple[Any, str], standstill: Standstill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ArithmeticError("Strobe's own")

    monkeypatch.setattr(*broken, fails)
    loop = Loop(standstill)
    for _ in range(2):
        loop.train(strobe.watch(loop.loader(), directory="here"))
    loops.close()
    assert loop.optimizer.state[next(loop.model.parameters())]["step"] == 2 * STEPS
    assert capsys.readouterr().err.count("Strobe stopped measuring") == 1


def test_few_parameters_say_when_a_backward_pass_begins_and_others_once_these_rest(standstill: Standstill) -> None:
    loop = Loop(standstill)
    early, late = loop.model[0], loop.model[2]
    watched = strobe.watch(loop.loader(), directory="here")
    hooked = []
    for number, batch in enumerate(watched):
        late.requires_grad_(number < 6)
        loop.step(batch)
        hooked.append(
            [sum(bool(one._post_accumulate_grad_hooks) for one in part.parameters()) for part in (early, late)]
        )
    watched.close()
    assert hooked[0] == [2, 2]
    assert hooked[LEARN + 1][0] == 0
    assert sum(hooked[-1]) == 1
    assert hooked[-1][0] == 1


def test_parameters_of_each_batch_are_followed_and_forgotten(standstill: Standstill) -> None:
    watched = strobe.watch(Loop(standstill).loader(), directory="here")
    for _ in range(2):
        for batch in watched:
            latent = torch.nn.Parameter(torch.zeros(8))
            optimizer = torch.optim.SGD([latent], lr=0.1)
            for _ in range(2):  # the first update shows whose parameters are trained
                (latent + batch).square().mean().backward()
                optimizer.step()
            [recorded] = training.recording
            assert len(recorded.phases._parameters) <= 2  # this one and, until it is collected, the one before
    passes = recorded.phases.passes
    watched.close()
    assert passes >= 2 * STEPS
    assert len(rows()) == 2 * STEPS
    assert {row["updates"] for row in rows()} == {"2"}
