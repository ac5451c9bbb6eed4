"""``strobe.watch``: loops that scripts write themselves, without Lightning, and the records of them."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import strobe
from strobe.attach import loops
from support.fitting import Standstill, standstill
from support.foreign import SLOW, STEP, Stream, first, loaded
from support.places import ROOT
from support.watched import STEPS, Loop, alone, record, rows

__all__ = ["alone", "standstill"]
pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize(
    ("how", "slow", "cause", "told"),
    [
        ("train", "data", "loader", "Write DataLoader(..., num_workers="),
        ("train", "optimizer", "optimizer", "The optimizer takes 80% of each step"),
        ("train", "before", "stalled", "Code before the backward pass is idle"),
        ("train", "after", "stalled", "Code around the update is idle"),
        ("accumulate", "data", "loader", "waits for data"),
        ("accumulate", "after", "stalled", "Code around the update is idle"),
        ("two", "after", "stalled", "Code around the update is idle"),
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


def twice(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(images).square().mean() + model(images).detach().mean()
    return loss


def again_in_the_backward_pass(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = checkpoint(model, images, use_reentrant=False).square().mean()
    return loss


@pytest.mark.parametrize(
    ("loss", "compiles", "calls"),
    [(twice, "", 2), (again_in_the_backward_pass, "", None), (twice, "another", 2), (twice, "it", None)],
)
def test_a_network_that_is_called_twice_on_a_batch_is_told(
    loss: Any, compiles: str, calls: int | None, standstill: Standstill
) -> None:
    loop = Loop(standstill)
    loop.model[1] = torch.nn.Tanh()  # instead of what draws random numbers
    other = torch.nn.Linear(8, 1)
    if compiles:
        (loop.model if compiles == "it" else other).compile(backend="eager")
    other(torch.ones(1, 8))
    for batch in (watched := strobe.watch(loop.loader(), directory="here")):
        loop.optimizer.zero_grad()
        loop.nap("step")
        loss(loop.model, first(batch)).backward()
        loop.optimizer.step()
    watched.close()
    told = record()["repeated"]
    assert (told and (told["function"], told["calls"])) == (calls and ("twice", calls))


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
    # The first update of a loader's shows to whom it belongs.
    assert [row["updates"] for row in rows()] == ["1"] * (3 * STEPS - 2)
    assert not Path("here-2").exists()


def test_a_loader_beside_is_waited_for_in_the_same_step(standstill: Standstill) -> None:
    loop = Loop(standstill, "data")
    for batch, _ in zip(strobe.watch(loop.loader(), directory="here"), strobe.watch(loop.loader()), strict=True):
        loop.step(batch)
    loops.close()
    assert len(rows()) == STEPS
    assert float(rows()[5]["data_wait"]) == pytest.approx(2 * SLOW)


def test_making_the_iterator_waits_for_data(standstill: Standstill) -> None:
    class Starting:
        def __iter__(self) -> Iterator[torch.Tensor]:
            standstill.nap(SLOW)  # such as the start of workers
            return iter([torch.ones(4, 8)] * STEPS)

    Loop(standstill).train(strobe.watch(Starting(), directory="here", report=False), epochs=2)
    loops.close()
    assert [float(row["data_wait"]) for row in rows()] == pytest.approx([SLOW, *[0] * (STEPS - 1)] * 2)


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


def test_a_record_that_is_removed_while_training_runs_is_missed(
    standstill: Standstill, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(standstill)
    for batch in strobe.watch(loop.loader(), directory="here"):
        loop.step(batch)
        shutil.rmtree("here", ignore_errors=True)
    loops.close()
    (message,) = caplog.messages
    assert message.endswith("here was removed while training ran, so Strobe has no record of it")
    assert "run completed" not in capsys.readouterr().err
    assert not Path("here").exists()


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


def test_fabric_is_watched_in_its_loop(standstill: Standstill) -> None:
    ended = []
    for watched in (False, True):
        loop = Loop(standstill, "data")
        fabric = Fabric(accelerator="cpu", devices=1)
        model, optimizer = fabric.setup(loop.model, loop.optimizer)
        loader = fabric.setup_dataloaders(loop.loader())
        for batch in strobe.watch(loader, optimizer=optimizer, directory="here") if watched else loader:
            optimizer.zero_grad()
            loop.nap("step")
            loss = model(batch).square().mean()
            fabric.backward(loss)
            optimizer.step()
        drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1:]
        ended.append((loop.model.state_dict(), loop.optimizer.state_dict(), loss.detach(), drawn))
    loops.close()
    torch.testing.assert_close(ended[0], ended[1], rtol=0, atol=0)
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


def test_a_process_that_is_killed_leaves_nothing_outside_its_record() -> None:
    """Nor do its loader workers, which give no tensors here: what torch keeps of these is not of interest."""
    loader = "torch.utils.data.DataLoader(range(80), 2, num_workers=1, collate_fn=lambda _: time.sleep(0.002))"
    killed = "import signal; os.kill(os.getpid(), signal.SIGKILL)\n        print"
    text = SCRIPT.replace("[torch.ones(2, 4)] * 40", loader).replace("raise ArithmeticError", killed)
    Path("train.py").write_text("import os\n" + text.replace("model(batch)", "model(torch.ones(2, 4))"))
    Path("temporary").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(Path("temporary").absolute())}
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert Path("here/steps.csv").is_file()
    assert not list(Path("temporary").iterdir())
    assert {path.name for path in Path().iterdir()} == {"here", "temporary", "train.py"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_process_as_before_and_its_record_first(number: signal.Signals) -> None:
    text = SCRIPT.replace("raise ArithmeticError", f"os.kill(os.getpid(), {number:d})\n        print")
    Path("train.py").write_text(f"import os\n{text}")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == -number, done.stderr
    assert not done.stdout  # nothing of the script ran any more
    assert "here/report.html" in done.stderr
    assert record()["status"] == "interrupted"
    assert number.name in record()["error"]["message"]


def test_a_script_keeps_its_own_handler_of_a_signal(standstill: Standstill) -> None:
    def own(*_: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        loop = Loop(standstill)
        loop.train(strobe.watch(loop.loader(), directory="here"))
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
