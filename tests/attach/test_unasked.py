"""Loops that a script writes over a DataLoader, without a word of Strobe, under ``strobe run`` and with Fabric."""

import gc
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import autograd
from torch.utils.checkpoint import checkpoint

from strobe.attach import driver
from strobe.attach.updates import UNSTEPPED, Passes
from support.entry_points import install
from support.watched import record, rows

LOOP = """
import random, sys, threading, time
import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

def collated(items):
    time.sleep(0.005)
    return default_collate(items)

for seed in random.seed, numpy.random.seed, torch.manual_seed:
    seed(1)
items, held_out = TensorDataset(torch.randn(48, 4)), TensorDataset(torch.ones(12, 4))
loader = DataLoader(items, 4, shuffle=True, collate_fn=collated)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []

def step(batch):
    optimizer.zero_grad()
    loss = model(batch[0]).square().mean()
    losses.append(loss.detach())
    loss.backward()
    optimizer.step()
"""
LOOKS = """
len(next(iter(loader)))  # looks at the data are no training, be it with gradients
sum(batch[0].sum() for batch in loader)
sum(model(batch[0]).sum() for batch in DataLoader(held_out, 4))
beside = threading.Thread(target=lambda: sum(1 for batch in DataLoader(held_out, 4)))
beside.start()
beside.join()
"""
EPOCHS = """
for epoch in range(2):
    for batch in loader:
        step(batch)
    with torch.no_grad():
        for batch in DataLoader(held_out, 4):
            model(batch[0])
"""
TOLD = """
torch.set_printoptions(precision=17)
print(model.state_dict(), getattr(optimizer, "state_dict", dict)(), losses, len(iter(loader)))
print(torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist())
"""
FABRIC = """
from {package} import Fabric
fabric = Fabric(accelerator="cpu", devices=1)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(loader)
"""
TRAINER = """
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
Trainer(max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True).fit(BoringModel())
"""
WATCHED = """
import strobe
for batch in strobe.watch(loader):
    step(batch)
"""
WITHOUT_LOADER = """
def get_batch():
    time.sleep(0.004)
    return (torch.randn(4, 4),)
for _ in range(30):
    step(get_batch())
"""
CAPTURED = """
number = 0
torch.cuda.is_initialized, torch.cuda.current_device, torch.cuda.memory_allocated = lambda: True, int, lambda _: 0
torch.cuda.is_current_stream_capturing = lambda: number in (4, 5)
for number in range(1, 31):
    step((torch.randn(4, 4),))
"""
ADVERSARIES = """
critic = torch.optim.Adam(torch.nn.Linear(4, 1).parameters())
for _ in range(20):
    step((torch.randn(4, 4),))
    critic.step()
    critic.step()
"""
BY_HAND = """
class Descent:  # is no optimizer of torch's
    def zero_grad(self):
        for one in model.parameters():
            one.grad = None
    def step(self):
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.1 * torch.from_numpy(one.grad.numpy())
optimizer = Descent()
"""
FUNCTIONAL = """
optimizer = None
def step(batch):
    def loss_of(weights):
        return torch.func.functional_call(model, weights, (batch[0],)).square().mean()
    gradients, loss = torch.func.grad_and_value(loss_of)(dict(model.named_parameters()))
    losses.append(loss.item())
    with torch.no_grad():
        for name, one in model.named_parameters():
            one -= 0.1 * gradients[name]
"""
COMPILED_STEP = """
def learn(batch):
    optimizer.zero_grad()
    model(batch[0]).square().mean().backward()
learn = torch.compile(learn, backend='eager')
def step(batch):
    learn(batch)
    optimizer.step()
"""
RUN, STROBE = ("-m", "strobe.run", "--out", "here"), {"STROBE": "1", "STROBE_OUT": "here"}


@pytest.fixture(autouse=True)
def _(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)


def ran(text: str, *under: str, **environment: str) -> tuple[str, str]:
    """What a script has written to its standard output and error."""
    Path("train.py").write_text(text)
    line = [sys.executable, *under, "train.py"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=os.environ | environment)
    return done.stdout, done.stderr


def waits_for_data(summary: dict[str, Any]) -> bool:
    """Other processes may take more of it."""
    causes = [one["cause"] for one in summary["findings"]]
    return next(cause for cause in causes if cause != "shared_machine") == "loader"


def test_a_loop_is_recorded_as_if_it_were_watched() -> None:
    script = LOOP + LOOKS + EPOCHS + TOLD
    (plain, _), (out, _) = ran(script), ran(script, *RUN)
    assert out == plain  # weights, the optimizer's state, losses, random numbers
    summary = record()
    assert waits_for_data(summary)
    assert summary["data"] == "TensorDataset"
    assert [(row["epoch"], row["updates"]) for row in rows()] == [("0", "1")] * 12 + [("1", "1")] * 12
    validated = [float(row["validation"]) > 0 for row in rows()]
    assert validated[11]
    assert not validated[0]
    assert {path.name for path in Path().iterdir()} == {"train.py", "site", "here"}


@pytest.mark.parametrize(
    ("then", "steps"),
    [("", 0), (EPOCHS + TRAINER, 24), (EPOCHS + WATCHED, 24)],
    ids=["nothing", "an own loop and a Trainer", "own loops, one watched"],
)
def test_what_does_not_train_leaves_no_record(then: str, steps: int) -> None:
    _, said = ran(LOOP + LOOKS + then, *RUN)
    assert (driver.NOTHING in said) == (not steps)
    assert Path("here").exists() == bool(steps)
    if steps:
        assert len(rows()) == steps
        assert record("here-2")["status"] == "completed"


@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
def test_fabric_needs_no_edit_either(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    script = LOOP + FABRIC.format(package=package) + EPOCHS.replace("model(batch[0])", "model(*batch)")
    script += TOLD.replace("len(iter(loader))", "len(loader)")
    (plain, _), (out, said) = ran(script), ran(script, **STROBE)
    assert out == plain
    assert waits_for_data(record())
    assert record()["data"] == "TensorDataset"
    assert said.count("here/report.html") == 1


def test_updates_end_the_steps_where_no_loader_gives_the_batches() -> None:
    script = LOOP + WITHOUT_LOADER + TOLD
    (plain, _), (out, _) = ran(script), ran(script, *RUN)
    assert out == plain
    assert [(row["epoch"], row["images"], row["updates"]) for row in rows()] == [("0", "", "1")] * 29
    assert {float(row["data_wait"]) for row in rows()[1:]} == {0.0}  # no loader is waited for
    assert "loader" not in {one["cause"] for one in record()["findings"]}


def test_an_update_that_a_cuda_graph_captures_ends_no_step() -> None:
    _, said = ran(LOOP + CAPTURED, *RUN)
    assert [row["updates"] for row in rows()] == ["1", "1", "3", *["1"] * 24]
    assert said.count("Strobe sees no update where a CUDA graph replays it") == 1
    assert "Traceback" not in said


def test_where_optimizers_take_turns_the_first_ones_updates_end_the_steps() -> None:
    ran(LOOP + ADVERSARIES, *RUN)
    assert [row["updates"] for row in rows()] == ["3"] * 19


def test_a_loop_over_a_loader_that_trains_later_has_its_own_record() -> None:
    _, said = ran(LOOP + WITHOUT_LOADER + LOOKS + WITHOUT_LOADER + EPOCHS, *RUN)
    assert len(rows()) == 58  # the update that begins each, and what no update ends, are in no row
    assert [row["images"] for row in rows("here-2")] == ["4"] * 23  # its first update has shown that it trains
    assert "Traceback" not in said


def test_of_very_many_trainings_only_the_first_ones_are_recorded() -> None:
    clients = """
from copy import deepcopy
from strobe.attach import outside, training
training.MOST_RECORDS, outside.LEAST, outside.NOTABLE = 2, 0.1, 0.01
def prepare():
    time.sleep(0.6)
prepare()
for _ in range(4):
    client = deepcopy(model)
    own = torch.optim.SGD(client.parameters(), lr=0.01)
    for epoch in range(2):
        for batch in loader:
            client(batch[0]).sum().backward()
            own.step()
    time.sleep(0.7)
print("all of them have trained")
"""
    out, said = ran(LOOP + clients, *RUN)
    assert "all of them have trained" in out
    assert said.count("Strobe has recorded 2 trainings of this script, and records no more of them.") == 1
    assert {path.name for path in Path().glob("here*")} == {"here", "here-2"}
    # Two epochs each; a first update has to show that another training has begun.
    assert [len(Path(name, "steps.csv").read_text().splitlines()) - 1 for name in ("here", "here-2")] == [24, 23]
    assert [record(name)["status"] for name in ("here", "here-2")] == ["completed"] * 2
    # Of what is not trained the calls that no training makes; after the second one nothing is looked at.
    (outside,) = (line for line in said.splitlines() if line.startswith("Outside of training, this script spent"))
    assert "train.py:" in outside
    assert {"(`prepare()`)", "(`time.sleep(0.7)`)"} <= set(re.findall(r"\(`.*?`\)", outside))
    assert "import" not in outside


def test_another_thread_may_train() -> None:
    """Until its first update it may only load for the main thread; from then on its loops are recorded, too."""
    epochs = "def train():\n" + EPOCHS.replace("\n", "\n    ") + "\n"
    script = LOOP + LOOKS + epochs + "beside = threading.Thread(target=train)\nbeside.start()\nbeside.join()\n" + TOLD
    (plain, _), (out, said) = ran(script), ran(script, *RUN)
    assert out == plain
    assert [row["images"] for row in rows()] == [""] * 11
    assert [row["images"] for row in rows("here-2")] == ["4"] * 11
    assert "Traceback" not in said


@pytest.mark.parametrize("differentiating", [BY_HAND, FUNCTIONAL])
def test_backward_passes_stand_for_updates_that_no_optimizer_of_torch_makes(differentiating: str) -> None:
    """Those of ``backward``, and those of torch.func."""
    script = LOOP + differentiating + WITHOUT_LOADER + EPOCHS + TOLD
    (plain, _), (out, said) = ran(script), ran(script, *RUN)
    assert out == plain
    assert "Traceback" not in said
    assert len(rows()) == 27  # the first two may be of a script that has an optimizer, and the third one begins
    assert [row["images"] for row in rows("here-2")] == ["4"] * 23
    assert all(float(row["backward"]) > 0 for row in [*rows(), *rows("here-2")])
    assert record("here-2")["unused_backward"] is None  # though no operation shows who reads the gradients


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_looks_at_a_script_that_compiles_is_not_compiled_with_it(by_hand: bool) -> None:
    """A backward pass within what is compiled is left alone."""
    compiled = BY_HAND + COMPILED_STEP if by_hand else "model.forward = torch.compile(model.forward, backend='eager')\n"
    (plain, before), (out, said) = (ran(LOOP + compiled + WITHOUT_LOADER + TOLD, *under) for under in ((), RUN))
    assert out == plain
    assert "dynamo" not in before + said
    assert (driver.NOTHING in said) == by_hand
    assert by_hand or len(rows()) == 29


def test_only_backward_passes_that_end_count_and_none_once_there_is_an_optimizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autograd, "backward", backward := autograd.backward)
    monkeypatch.setattr(autograd, "grad", gradients := autograd.grad)
    monkeypatch.setattr(gc, "get_objects", list)
    ended: list[Passes | None] = []
    passes = Passes(lambda: None, ended.append)
    passes.follow()
    value = torch.ones(1, requires_grad=True)
    for _ in range(UNSTEPPED):
        autograd.grad(value.square(), value)
    assert ended == [passes]  # the third, as nothing has called backward yet
    ended.clear()
    value.square().backward()  # type: ignore[no-untyped-call]
    autograd.grad(value.square(), value)  # a penalty's, from now on
    for _ in range(UNSTEPPED + 1):
        checkpoint(torch.square, value, use_reentrant=True).backward()  # which calls backward, too
    assert ended == [passes] * (UNSTEPPED + 2)
    del ended[2:]
    with pytest.raises(RuntimeError):
        torch.ones(1).backward()  # type: ignore[no-untyped-call]
    assert ended == [passes, passes, None]
    value.square().backward()  # type: ignore[no-untyped-call]
    passes.forget()
    value.square().backward()  # type: ignore[no-untyped-call]
    assert ended == [passes, passes, None, passes, None]  # it begins and ends, and is no update
    assert autograd.backward is not backward
    assert autograd.grad is gradients


def test_a_backward_pass_begins_where_it_is_called() -> None:
    """Not with the first gradient of a parameter: the loss's own may take long."""
    slow = """
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(_, loss):
        return loss.clone()
    @staticmethod
    def backward(_, gradient):
        time.sleep(0.02)
        return gradient
def step(batch):
    optimizer.zero_grad()
    Slow.apply(model(batch[0]).square().mean()).backward()
    optimizer.step()
"""
    ran(LOOP + slow + EPOCHS, *RUN)
    assert all(float(row["backward"]) >= 0.02 for row in rows()[1:])  # the first one has no optimizer yet


def test_a_few_updates_are_no_training() -> None:
    _, said = ran(LOOP + "for _ in range(3): step((torch.ones(4, 4),))\n", *RUN)
    assert driver.NOTHING in said
    assert not Path("here").exists()


def test_a_script_that_only_starts_others_is_told_so() -> None:
    Path("other.py").write_text("sum(range(100_000_000))\n")
    _, said = ran("import subprocess, sys\nsubprocess.run([sys.executable, 'other.py'])\n", *RUN)
    assert driver.NOTHING + driver.OTHERWISE + driver.ELSEWHERE in said


def test_a_compiled_update_is_left_alone() -> None:
    compiled = "optimizer.step = torch.compile(optimizer.step, backend='eager')\n"
    (plain, _), (out, said) = (ran(LOOP + compiled + WITHOUT_LOADER + TOLD, *under) for under in ((), RUN))
    assert out == plain
    assert driver.NOTHING in said
