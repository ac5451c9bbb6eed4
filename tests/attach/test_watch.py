"""``strobe.watch``: loops that scripts write themselves, without Lightning."""

import csv
import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import strobe
from strobe.attach import loops, place
from strobe.callbacks.loop import LEARN, LoopPhases
from strobe.callbacks.rows import StepLog
from support.fitting import Standstill, standstill
from support.foreign import SLOW, STEP, Items, Stream, loaded
from support.places import ROOT

__all__ = ["standstill"]
ALONE = {"own": 0.5, "others": 0.0, "stolen": 0.0, "idle": 0.5, "delayed": 0.0, "seconds": 1.0}
STEPS = 12


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, standstill: Standstill) -> Iterator[None]:
    """A machine on which nothing else runs, an empty working directory, and no record that stays open."""
    monkeypatch.setattr(loops.contention, "between", lambda *_: dict(ALONE))
    monkeypatch.setattr(loops, "time", standstill)
    monkeypatch.setattr(place, "_said", False)
    monkeypatch.chdir(tmp_path)
    yield
    loops.close()


def record(name: str = "here") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(name, "summary.json").read_text())
    return found


def rows(name: str = "here") -> list[dict[str, str]]:
    with Path(name, "steps.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def first(batch: Any) -> torch.Tensor:
    while not isinstance(batch, torch.Tensor):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return batch


class Loop:
    """A model and its optimizers; a step computes for 1 ms, and `slow` is 4 ms slower."""

    def __init__(self, clock: Standstill, slow: str = "", seed: int = 7) -> None:
        torch.manual_seed(seed)
        self.clock, self.slow = clock, slow
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.optimizer.register_step_pre_hook(lambda *_: self.nap("optimizer"))

    def nap(self, what: str) -> None:
        if what in ("step", self.slow):
            self.clock.nap(STEP if what == "step" else SLOW)

    def loader(self, kind: Callable[[Items], Any] = loaded, **form: Any) -> Any:
        return kind(Items(lambda: self.nap("data"), **form))

    def loss(self, batch: Any) -> torch.Tensor:
        self.nap("before")
        self.nap("step")
        loss: torch.Tensor = self.model(first(batch)).square().mean()
        return loss

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()
        self.nap("after")

    def train(self, watched: Any, epochs: int = 1) -> None:
        for _ in range(epochs):
            for batch in watched:
                self.step(batch)

    def accumulate(self, watched: Any) -> None:
        for number, batch in enumerate(watched, 1):
            self.loss(batch).backward()
            if number % 3 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.nap("after")

    def two(self, watched: Any) -> None:
        other = torch.optim.SGD(self.model.parameters(), lr=0.01)
        for batch in watched:
            for optimizer in (self.optimizer, other):
                optimizer.zero_grad()
                self.loss(batch).backward()
                optimizer.step()
            self.nap("after")

    def closure(self, watched: Any) -> None:
        optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=2)
        for batch in watched:

            def compute(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = self.loss(batch)
                loss.backward()
                return loss

            optimizer.step(compute)

    def unseen(self, watched: Any) -> None:
        """Gradients that autograd gives to nobody's parameter."""
        for batch in watched:
            parameters = list(self.model.parameters())
            for parameter, gradient in zip(parameters, torch.autograd.grad(self.loss(batch), parameters), strict=True):
                parameter.grad = gradient
            self.optimizer.step()


@pytest.mark.parametrize(
    ("how", "slow", "cause", "told"),
    [
        ("train", "data", "loader", "Write DataLoader(..., num_workers="),
        ("train", "optimizer", "optimizer", "The optimizer takes 80% of each step"),
        ("train", "before", "stalled", "Code before the backward pass is idle"),
        ("train", "after", "stalled", "Code after the update is idle"),
        ("accumulate", "data", "loader", "waits for data"),
        ("accumulate", "after", "stalled", "Code after the update is idle"),
        ("two", "after", "stalled", "Code after the update is idle"),
        ("closure", "before", "stalled", "Code before the backward pass is idle"),
        ("closure", "data", "loader", "waits for data"),
        ("unseen", "before", "stalled", "Computing is idle"),
    ],
)
def test_the_first_finding_is_what_is_slow(  # noqa: PLR0917  # pytest names them
    how: str, slow: str, cause: str, told: str, standstill: Standstill, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(standstill, slow)
    watched = strobe.watch(loop.loader(), directory="here")
    for _ in range(2):
        getattr(loop, how)(watched)
    watched.close()
    summary, said = record(), capsys.readouterr()
    finding = summary["findings"][0]
    assert finding["cause"] == cause, summary["verdict"]
    assert told in "".join(finding[key] for key in ("title", "evidence", "advice"))
    assert "rainer" not in " ".join(found["advice"] for found in summary["findings"])  # there is none
    assert finding["title"] in " ".join(said.err.split())
    assert not said.out
    assert (summary["unit"], summary["data"], summary["batch_size"], summary["status"]) == (
        *("samples", "Items", 4),
        "completed",
    )


@pytest.mark.parametrize(
    ("loader", "form"),
    [
        (loaded, lambda sample: {"x": {"y": sample}, "name": "n"}),
        (lambda items: loaded(Stream(items)), lambda sample: sample),
        (lambda items: list(loaded(items)), lambda sample: (sample, 1)),
        (lambda items: iter(loaded(items)), lambda sample: sample),
    ],
    ids=["dicts", "no length", "a list", "an iterator"],
)
def test_each_batch_is_a_step_whatever_gives_it(loader: Any, form: Any, standstill: Standstill) -> None:
    loop = Loop(standstill)
    watched = strobe.watch(loop.loader(loader, form=form), directory="here", report=False)
    loop.train(watched)
    watched.close()
    assert [(row["step"], row["epoch"], row["images"], row["updates"]) for row in rows()] == [
        (str(step), "0", "4", "1") for step in range(STEPS)
    ]
    assert all(float(row["total"]) == pytest.approx(STEP) for row in rows())
    assert {path.name for path in Path("here").iterdir()} == {"steps.csv", "summary.json"}


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


@pytest.mark.parametrize("again", [True, False], ids=["a new watch each epoch", "one watch"])
@pytest.mark.parametrize("validated", ["", "unwatched", "watched"])
def test_epochs_are_one_training(again: bool, validated: str, standstill: Standstill) -> None:
    loop = Loop(standstill)
    loader, held_out = loop.loader(), loop.loader()
    watched = strobe.watch(loader, directory="here")
    for _ in range(3):
        for batch in strobe.watch(loader) if again else watched:
            loop.step(batch)
        for batch in strobe.watch(held_out) if validated == "watched" else held_out if validated else ():
            with torch.no_grad():
                loop.loss(batch)
    loops.close()
    if again:
        Path("strobe-runs").rename("here")
        [place] = Path("here").glob("*/*")
    else:
        place = Path("here")
    assert [int(row["epoch"]) for row in rows(str(place))] == [0] * STEPS + [1] * STEPS + [2] * STEPS
    gaps = {"watched": "validation", "unwatched": "between"}
    for gap in ("validation", "between"):  # what follows the last epoch may be anything
        whole = sum(float(row[gap]) for row in rows(str(place)))
        assert whole == pytest.approx(2 * STEPS * STEP if gaps.get(validated) == gap else 0)


@pytest.mark.parametrize("first", ["evaluation", "training"])
@pytest.mark.parametrize("outside", [True, False], ids=["the loop without gradients", "its body"])
def test_an_evaluation_is_no_training_in_whatever_order(first: str, outside: bool, standstill: Standstill) -> None:
    loop = Loop(standstill)
    loaders = {"training": loop.loader(), "evaluation": loaded(TensorDataset(torch.ones(12, 8)))}

    def run(what: str) -> None:
        train = what == "training"
        with torch.set_grad_enabled(train or not outside):
            for batch in strobe.watch(loaders[what], optimizer=loop.optimizer, directory="here"):
                with torch.set_grad_enabled(train):
                    loss = loop.loss(batch)
                if train:
                    loss.backward()
                    loop.optimizer.step()

    for what in (first, "training", "evaluation", "training"):
        run(what)
    loops.close()
    epochs = 2 + (first == "training")
    assert [row["updates"] for row in rows()] == ["1"] * STEPS * epochs
    assert (record()["data"], {path.name for path in Path().iterdir()}) == ("Items", {"here"})


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
    del theirs
    gc.collect()  # or the next test finds it
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


@pytest.mark.parametrize("shared", ["a loader", "nothing"])
@pytest.mark.parametrize("named", [True, False])
def test_two_trainings_are_two_records(shared: str, named: bool, standstill: Standstill) -> None:
    loader = Loop(standstill).loader()
    for seed in (1, 2):
        loop = Loop(standstill, seed=seed)
        loader = loader if shared == "a loader" else loop.loader()
        loop.train(strobe.watch(loader, optimizer=loop.optimizer if named else None, directory="here"), epochs=2)
    loops.close()
    # Without a name the second one is known by its first update.
    late = 0 if named else 1
    assert [len(rows(name)) for name in ("here", "here-2")] == [2 * STEPS, 2 * STEPS - late]
    assert {record(name)["status"] for name in ("here", "here-2")} == {"completed"}


def test_two_loaders_and_one_optimizer_are_one_training(standstill: Standstill) -> None:
    loop = Loop(standstill)
    for loader in (loop.loader(), loop.loader(), loop.loader()):
        loop.train(strobe.watch(loader, directory="here"))
    loops.close()
    assert len(rows()) == 3 * STEPS - 2  # the first update of a loader's shows to whom it belongs
    assert not Path("here-2").exists()


def test_a_loader_beside_is_waited_for_in_the_same_step(standstill: Standstill) -> None:
    loop = Loop(standstill, "data")
    for batch, _ in zip(strobe.watch(loop.loader(), directory="here"), strobe.watch(loop.loader()), strict=True):
        loop.step(batch)
    loops.close()
    assert len(rows()) == STEPS
    assert float(rows()[5]["data_wait"]) == pytest.approx(2 * SLOW)


def test_a_loop_that_breaks_off_has_its_verdict(standstill: Standstill) -> None:
    loop = Loop(standstill)
    watched = strobe.watch(loop.loader(), directory="here")
    for number, batch in enumerate(watched):
        if number == 5:
            break
        loop.step(batch)
    for number, batch in enumerate(watched):  # the next epoch
        loop.step(batch)
        if number == 5:
            break
    loops.close()
    assert [int(row["epoch"]) for row in rows()] == [0] * 5 + [1] * 6
    assert record()["status"] == "completed"


@pytest.mark.parametrize(("error", "status"), [(ArithmeticError, "failed"), (KeyboardInterrupt, "interrupted")])
@pytest.mark.parametrize("where", ["loader", "with"])
def test_what_ends_the_training_is_in_its_record(
    error: type[BaseException], status: str, where: str, standstill: Standstill
) -> None:
    loop = Loop(standstill)

    class Breaking(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from torch.ones(20, 8)
            if where == "loader":
                raise error("the script's own")

    def train() -> None:
        with strobe.watch(DataLoader(Breaking(), 4), directory="here") as watched:
            loop.train(watched)
            raise error("the script's own")

    with pytest.raises(error):
        train()
    assert (record()["status"], record()["error"]["type"], len(rows())) == (status, error.__name__, 5)
    assert Path("here/report.html").is_file()


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
    with pytest.raises(ValueError, match="trace has warm"):
        strobe.watch(loader, trace={"warm": 1})


@pytest.mark.parametrize(
    "broken", [(StepLog, "end_step"), (LoopPhases, "_learn"), (loops, "new_directory"), (loops, "finish")]
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
            [training] = loops._open
            assert len(training.phases._parameters) <= 2  # this one and, until it is collected, the one before
    passes = training.phases.passes
    watched.close()
    assert passes >= 2 * STEPS
    assert len(rows()) == 2 * STEPS
    assert {row["updates"] for row in rows()} == {"2"}


@pytest.mark.parametrize("watched", [True, False])
def test_fabric_is_watched_in_its_loop_or_says_how(
    watched: bool, standstill: Standstill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = []
    for recorded in (False, True):
        monkeypatch.setenv("STROBE", str(int(recorded)))
        loop = Loop(standstill, "data")
        fabric = Fabric(accelerator="cpu", devices=1)  # which asks the installed entry point
        model, optimizer = fabric.setup(loop.model, loop.optimizer)
        loader = fabric.setup_dataloaders(loop.loader())
        for batch in strobe.watch(loader, optimizer=optimizer, directory="here") if watched and recorded else loader:
            optimizer.zero_grad()
            loop.nap("step")
            fabric.backward(model(batch).square().mean())
            optimizer.step()
        ended.append((loop.model.state_dict(), loop.optimizer.state_dict()))
    loops.close()
    torch.testing.assert_close(ended[0], ended[1], rtol=0, atol=0)
    assert capsys.readouterr().err.count("Write: for batch in strobe.watch(loader, optimizer=optimizer)") == (
        not watched
    )
    if watched:
        summary = record()
        assert (summary["findings"][0]["cause"], summary["data"], summary["updates"]) == ("loader", "Items", 1)


SCRIPT = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lightning", "pytorch_lightning", "lightning_fabric"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
import time
import torch
import strobe

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, batch in enumerate(strobe.watch([torch.ones(2, 4)] * 40, optimizer=optimizer, directory="here")):
    time.sleep(0.002)
    model(batch).mean().backward()
    optimizer.step()
    if number == 30:
        raise ArithmeticError("the script's own")
"""


def test_a_process_without_lightning_ends_with_the_verdict() -> None:
    Path("train.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert not done.stdout
    assert "ArithmeticError: the script's own" in done.stderr
    assert "here/report.html" in done.stderr
    summary = record()
    assert (summary["status"], summary["error"]["message"]) == ("failed", "the script's own")
    assert summary["script"] == "python train.py"
    assert len(rows()) == 31
