"""Changes from outside: real loaders, Trainers, optimizers and modules, and scripts of both Lightnings."""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.utilities.data import _replace_dunder_methods
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.utilities.data import _update_dataloader
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from strobe.attach.settings import loaders_of, what_is_loaded
from strobe.probe import changes
from strobe.probe.changes import (
    BLAS,
    EACH,
    FUSED,
    KEYS,
    LOSSES,
    MADE,
    MALLOC,
    WANTED,
    changed_model,
    of_a_loader,
    of_a_trainer,
)

Install = Callable[..., None]
DATA: Any = list(range(24))  # a data set, though not of torch's class
QUIET: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """What is wrapped is itself again afterwards."""
    optimizers = [getattr(torch.optim, name) for name in (*FUSED, *EACH)]
    for owner in (DataLoader, StatefulDataLoader, Trainer, *optimizers):
        monkeypatch.setattr(owner, "__init__", owner.__init__)
    monkeypatch.setattr(Trainer, "fit", Trainer.fit)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.delitem(sys.modules, "pytorch_lightning.trainer.trainer", raising=False)
    products = type(torch.backends.cuda.matmul)
    monkeypatch.setattr(products, "__setattr__", products.__setattr__)
    kept = {name: getattr(torch, name) for name in ("set_num_threads", "set_float32_matmul_precision")}
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield lambda *texts: changes.install(texts)
    for name, value in zip(kept, (threads, precision), strict=True):
        setattr(torch, name, kept[name])
        kept[name](value)


class Own(DataLoader[int]):
    """A loader of the script's own, with other arguments."""

    def __init__(self, items: list[int], **named: Any) -> None:
        super().__init__(items, batch_size=4, **named)  # type: ignore[arg-type]


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("given", "asked", "wanted"),
    [
        ({}, {"engine.num_workers": 2}, {"num_workers": 2}),
        ({}, {"engine.prefetch_factor": 4}, {}),  # of no worker
        ({}, {"engine.prefetch_factor": 4, "engine.num_workers": 2}, {"prefetch_factor": 4, "num_workers": 2}),
        ({"num_workers": 2}, {"engine.persistent_workers": True}, {"num_workers": 2, "persistent_workers": True}),
        (
            {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True, "timeout": 9, "shuffle": True},
            {"engine.num_workers": 0},
            {"num_workers": 0, "shuffle": True},
        ),
        ({"batch_size": 4}, {"data.batch_size": 8}, {"batch_size": 8}),
        ({}, {"data.batch_size": 8}, {}),  # the script gave none
        ({"batch_size": None}, {"data.batch_size": 8}, {"batch_size": None}),
        ({"pin_memory": False}, {"engine.pin_memory": True}, {"pin_memory": True}),
        ({}, {"engine.multiprocessing_context": "spawn"}, {}),
    ],
)
def test_torch_takes_the_arguments_together(given: Any, asked: Any, wanted: Any) -> None:
    found = of_a_loader(given, asked)
    assert found == wanted
    DataLoader(DATA, **found)


def test_a_batch_sampler_keeps_its_own_batches(install: Install) -> None:
    install("data.batch_size=8")
    sampler = BatchSampler(SequentialSampler(DATA), 3, drop_last=False)
    assert next(iter(DataLoader(DATA, batch_sampler=sampler))).tolist() == [0, 1, 2]


def test_loaders_are_changed_and_stay_what_they_are(install: Install) -> None:
    install("engine.num_workers=2", "engine.persistent_workers=true", "data.batch_size=6")
    own = Own(DATA, shuffle=False)  # here
    plain = DataLoader(DATA, 4)  # the plain one
    assert (type(own), own.num_workers, own.persistent_workers) == (Own, 2, True)
    assert (plain.batch_size, plain.num_workers) == (6, 2)
    assert vars(own)[MADE]["passes"]
    assert not vars(plain)[MADE]["constructor"]
    for loader, text in ((own, "# here"), (plain, "# the plain one")):
        place = vars(loader)[MADE]
        assert (Path(place["file"]), place["line"]) == (Path(__file__).resolve(), line_of(text))
    assert pickle.loads(pickle.dumps(plain)).batch_size == 6
    assert [len(batch) for batch in plain] == [6] * 4


@pytest.mark.parametrize("in_a_hook", [True, False])
def test_lightning_makes_a_loader_once_more(install: Install, in_a_hook: bool) -> None:
    """As it does for a distributed sampler; in a hook it has kept the script's own arguments."""
    install("engine.num_workers=2", "data.batch_size=6")
    if in_a_hook:
        with _replace_dunder_methods(DataLoader, "dataset"):
            loader = DataLoader(DATA, batch_size=4, shuffle=True)
    else:
        loader = DataLoader(DATA, batch_size=4, shuffle=True)
    again = _update_dataloader(loader, SequentialSampler(DATA))
    assert (again.num_workers, again.batch_size, again.prefetch_factor) == (2, 6, 2)
    assert vars(again)[MADE]["line"] == vars(loader)[MADE]["line"]


@pytest.mark.filterwarnings("ignore:'set_vital'")  # which StatefulDataLoader calls
def test_a_loader_that_keeps_its_place_is_changed_too(install: Install) -> None:
    install("engine.num_workers=1")
    loader = StatefulDataLoader(DATA, batch_size=4)
    assert loader.num_workers == 1
    assert not vars(loader)[MADE]["constructor"]


def test_a_trainers_arguments(install: Install) -> None:
    install("trainer.precision=bf16-mixed", "trainer.accumulate_grad_batches=3", "trainer.log_every_n_steps=7")
    trainer: Any = Trainer(**QUIET, precision="32-true")
    assert (trainer.precision, trainer.accumulate_grad_batches, trainer.log_every_n_steps) == ("bf16-mixed", 3, 7)
    assert vars(trainer)[MADE]["given"] == sorted([*QUIET, "precision"])
    own = Trainer(
        **QUIET, plugins=[MixedPrecision("bf16-mixed", "cpu")], callbacks=[GradientAccumulationScheduler({0: 2})]
    )
    assert own.accumulate_grad_batches != 3  # which Lightning would refuse, like a precision beside the plugin


def test_what_else_decides_stays() -> None:
    asked = {"trainer.benchmark": True, "trainer.val_check_interval": 5}
    assert of_a_trainer({"deterministic": True}, asked) == {"deterministic": True, "val_check_interval": 5}


def threads_in_a_worker(_: int) -> int:
    return torch.get_num_threads()


def precision_in_a_worker(_: Any) -> str:
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    return str(torch.backends.cuda.matmul.fp32_precision)


def test_threads_and_precision_of_products_stay_as_they_are_asked_for(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("threads=3", "matmul_precision=high", "engine.multiprocessing_context=fork")
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.allow_tf32 = False
    monkeypatch.setattr(torch.backends, "fp32_precision", "ieee")  # which does not set what a function has set
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (3, "high")
    items: Any = DATA
    loader = DataLoader(items, num_workers=1, collate_fn=lambda _: torch.get_num_threads())
    assert next(iter(loader)) == 1  # as torch has it in loader processes
    assert next(iter(DataLoader(items, num_workers=1, collate_fn=precision_in_a_worker))) == "ieee"
    assert not multiprocessing.active_children()


def test_optimizers(install: Install) -> None:
    install("model.fused=true")
    layer = torch.nn.Linear(2, 2)
    made = [torch.optim.AdamW(layer.parameters(), lr=0.1), torch.optim.SGD(layer.parameters(), momentum=0.9)]
    assert [one.defaults["fused"] for one in made] == [True, True]
    assert vars(made[0])[MADE]["call"] == "AdamW"
    assert not vars(made[0])[MADE]["constructor"]
    assert changes.of_an_optimizer({"differentiable": True}, True) == {"differentiable": True}
    assert changes.of_an_optimizer({}, "foreach") == {"fused": False, "foreach": True}


@pytest.mark.parametrize(("asked", "wanted"), [("model.fused=true", None), ("model.fused=foreach", True)])
def test_an_optimizer_without_a_fused_update(install: Install, asked: str, wanted: bool | None) -> None:
    install(asked)
    for name in EACH:
        layer = torch.nn.Linear(2, 2)
        optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1)
        layer(torch.ones(2)).sum().backward()
        optimizer.step()
        assert optimizer.defaults["foreach"] is wanted
        assert vars(optimizer)[MADE]["call"] == name


def test_the_module(install: Install) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
    assert changed_model(model, {"model.channels_last": True}) is model
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    linear, deep = torch.nn.Linear(2, 2), torch.nn.Conv3d(1, 1, 1)
    assert not changes.is_convolutional(linear)
    assert not changes.is_convolutional(torch.nn.Sequential(model, deep))
    compiled = changed_model(linear, {"model.compile": True})
    assert compiled._orig_mod is linear
    assert changed_model(compiled, {"model.compile": True}) is compiled


COMPILES = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from strobe.probe.changes import install
def backend(graph, inputs):
    print("compiled")
    return graph
for asked in ([], ["model.compile=false"]):
    torch._dynamo.reset()
    install(asked)
    whole, part = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    part.compile(backend=backend)
    for model in (torch.compile(whole, backend=backend), part, torch.compile(torch.cos, backend=backend)):
        model(torch.ones(2))
    print("asked")
"""


def test_nothing_is_compiled_wherever_the_script_does_it() -> None:
    words = [sys.executable, "-c", COMPILES, Path(changes.__file__).parents[2]]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["compiled", "compiled", "compiled", "asked", "asked"]


def test_what_cannot_be_changed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"loader cannot be changed from outside; what can be is engine\.num_workers"):
        changes.install(["loader=native"])


SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader
import {lightning} as lightning

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Told(lightning.Callback):
    def on_train_end(self, trainer, module):
        import json
        sys.path.insert(0, sys.argv[1])
        from strobe.attach.settings import settings_of
        print(json.dumps(settings_of(trainer)))

loader = DataLoader(
    torch.rand(8, 3, 4, 4),
    batch_size=2,
)
trainer = lightning.Trainer(
    max_steps=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
    enable_model_summary=False, callbacks=[Told()],
)
trainer.fit(Net(), loader)
"""
BY_PATH = """
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location("changes", sys.argv[1])
changes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(changes)
changes.install()
assert not {"torch", "strobe"} & sys.modules.keys()
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("lightning", ["lightning.pytorch", "pytorch_lightning"])
def test_a_script_of_either_lightning_by_this_files_path(lightning: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(lightning=lightning))
    asked = ["data.batch_size=4", "model.channels_last=true", "model.fused=true", "trainer.precision=bf16-mixed"]
    asked += [f"environment.{one}" for one in ("OPENBLAS_NUM_THREADS=1", "MALLOC_MMAP_MAX_=0")]
    losses = tmp_path / "losses.txt"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BY_PATH, changes.__file__, script, Path(changes.__file__).parents[2]],
        env=os.environ | {WANTED: json.dumps(asked), LOSSES: str(losses), "STROBE": "", "OPENBLAS_NUM_THREADS": "2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout.splitlines()[-1])
    assert told["data"] == {"batch_size": 4}
    assert told["trainer"]["precision"] == "bf16-mixed"
    assert told["model"] == {"channels_last": True, "compile": False, "fused": True}
    assert told["matmul_precision"] == "highest"
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": None}
    assert told["environment"] == {"OPENBLAS_NUM_THREADS": "1"} | kept
    text = SCRIPT.splitlines()
    lines = {kind: text[each[0]["line"] - 1] for kind, each in told["made"].items()}
    assert lines["loader"].startswith("loader = DataLoader(")
    assert lines["trainer"].startswith("trainer = lightning.Trainer(")
    assert "torch.optim.SGD" in lines["optimizer"]
    assert all(each[0]["file"] == str(script) for each in told["made"].values())
    assert len(losses.read_text().splitlines()) == 3


def test_a_loader_within_a_wrapper_tells_its_workers() -> None:
    """As webdataset's WebLoader, which holds a list of stages, and timm's PrefetchLoader."""
    inner: Any = DataLoader(DATA, batch_size=3, num_workers=2)
    for held in (inner, [inner, "a stage"]):
        wrapper = types.SimpleNamespace(held=held, length=-1)
        assert loaders_of({"train": wrapper}) == [inner]
        assert what_is_loaded(wrapper)["num_workers"] == 2
        assert what_is_loaded(wrapper)["batch_size"] is None  # a later stage may make other batches
    assert loaders_of([types.SimpleNamespace(held=1), [1, 2]]) == []


def test_keys_are_those_that_the_search_and_the_advice_know() -> None:
    from strobe.diagnose.foreign import calls
    from strobe.measure import environment
    from strobe.tune.dimensions import ALL, DIMENSIONS, OWN

    assert {name: (value, MALLOC[name]) for name, (value, _) in environment.MALLOC.items()} == environment.MALLOC
    searched = {key for key, name in DIMENSIONS.items() if name not in OWN}
    assert searched <= {*KEYS}
    assert {*ALL} >= {*OWN}
    written = {key: calls([f"{key}=true"]) for key in KEYS}
    for name in (BLAS, *MALLOC):
        assert written.pop(f"environment.{name}") == [f"{name}=True before the command"]
    assert all("{" not in call and "(" in call for texts in written.values() for call in texts)
