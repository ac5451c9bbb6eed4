"""The LightningModule: its optimizer, schedule, memory format, and what it counts."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset

from strobe.app.config.schema import ResNet18Config
from strobe.app.model.classifier import ImageClassifier
from strobe.app.model.resnet import build_resnet18
from strobe.errors import ConfigError
from strobe.records.files import write_summary
from strobe.records.run import read_summary
from support.refusals import refusal

DEFAULTS = {name: value for name, value in vars(ResNet18Config()).items() if name != "_target_"}
CLASSES = ("cat", "dog", "frog", "ship")

pytestmark = pytest.mark.filterwarnings("ignore:.*(does not have many workers|have no `val_dataloader`)")


def classifier(**options: Any) -> ImageClassifier:
    torch.manual_seed(1)
    return ImageClassifier(**{**DEFAULTS, "classes": CLASSES, "channels": 3, "batch_size": 4, **options})


def trainer(folder: Path, **options: Any) -> Trainer:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(
        accelerator="cpu", default_root_dir=folder, log_every_n_steps=1, num_sanity_val_steps=0, **{**quiet, **options}
    )


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(2))


def batches(labels: Sequence[int], size: int = 4) -> DataLoader[Any]:
    """Images with these labels, in order; the last batch may be smaller."""
    return DataLoader(TensorDataset(images(len(labels)), torch.tensor(labels)), size)


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_the_optimizer_gets_its_parameters(name: str, kind: type[torch.optim.Optimizer]) -> None:
    model = classifier(optimizer=name, lr=0.2, weight_decay=0.03, momentum=0.4)
    optimizer = model.configure_optimizers()
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert set(map(id, group["params"])) == set(map(id, model.parameters()))
    assert (group["lr"], group["weight_decay"]) == (0.2, 0.03)
    assert group.get("momentum") == (0.4 if name == "sgd" else None)


class Notes(Callback):
    """The learning rate of each optimizer step, and the loss and number of images of each training batch."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[tuple[float, int]] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: torch.optim.Optimizer) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append((outputs["loss"].item(), len(batch[1])))


@pytest.mark.parametrize(("accumulate", "steps"), [(1, 6), (2, 4)])
def test_one_cycle_steps_each_batch_to_its_end(tmp_path: Path, accumulate: int, steps: int) -> None:
    notes = Notes()
    fitting = trainer(tmp_path, max_epochs=2, accumulate_grad_batches=accumulate, callbacks=[notes])
    fitting.fit(classifier(scheduler="one_cycle", lr=0.01), batches([0, 1, 2, 3, 0, 1], size=2))
    optimizer = torch.optim.Adam(nn.Linear(1, 1).parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    expected = []
    for _ in range(steps):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert notes.rates == pytest.approx(expected)


def test_one_cycle_needs_an_end(tmp_path: Path) -> None:
    model = classifier(scheduler="one_cycle")
    model.trainer = trainer(tmp_path, max_epochs=-1)
    assert "model.scheduler=one_cycle" in refusal(model.configure_optimizers, ConfigError)


def test_without_a_schedule_the_rate_stays(tmp_path: Path) -> None:
    notes = Notes()
    trainer(tmp_path, max_epochs=2, callbacks=[notes]).fit(classifier(lr=0.01), batches([0, 1, 2, 3]))
    assert notes.rates == [0.01, 0.01]


@pytest.mark.parametrize(
    ("batch_size", "options", "factor"),
    [
        (32, {}, 1),
        (128, {}, 4),
        (8, {}, 0.25),
        (32, {"strategy": "ddp", "devices": 2}, 2),
        (64, {"strategy": "ddp", "devices": 2, "accumulate_grad_batches": 3}, 12),
    ],
)
def test_the_rate_grows_with_the_batch(tmp_path: Path, batch_size: int, options: dict[str, Any], factor: float) -> None:
    for scaling, wanted in (("linear", 0.1 * factor), ("none", 0.1)):
        model = classifier(batch_size=batch_size, lr=0.1, lr_scaling=scaling)
        model.trainer = trainer(tmp_path, **options)
        assert model.configure_optimizers().param_groups[0]["lr"] == pytest.approx(wanted)


def test_channels_last_is_another_order_of_the_same_numbers() -> None:
    orders, logits = [], []

    def note(layer: nn.Module, given: tuple[Tensor], result: Tensor) -> None:
        orders.append([t.is_contiguous(memory_format=torch.channels_last) for t in (layer.weight, given[0], result)])

    for model in (classifier().eval(), classifier(channels_last=True).eval()):
        model.network.conv1.register_forward_hook(note)
        with torch.no_grad():
            logits.append(model(images(4)))
    assert orders == [[False] * 3, [True] * 3]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-5)


def test_only_the_training_loss_is_smoothed(tmp_path: Path) -> None:
    labels = torch.tensor([0, 1, 2, 3])
    before = F.cross_entropy(classifier().network(images(4)).detach(), labels, label_smoothing=0.3)
    model, fitting = classifier(label_smoothing=0.3), trainer(tmp_path, max_epochs=1)
    fitting.fit(model, batches(labels.tolist()), batches(labels.tolist()))
    trained = dict(fitting.callback_metrics)
    fitting.test(model, batches(labels.tolist()), verbose=False)

    with torch.no_grad():
        after = F.cross_entropy(model.eval().network(images(4)), labels).item()
    assert trained["train/loss"] == pytest.approx(before.item(), rel=1e-5)
    assert trained["val/loss"] == pytest.approx(after, rel=1e-5)
    assert fitting.callback_metrics["test/loss"] == pytest.approx(after, rel=1e-5)


def test_the_training_loss_is_a_mean_over_images(tmp_path: Path) -> None:
    notes = Notes()
    fitting = trainer(tmp_path, max_epochs=1, callbacks=[notes])
    fitting.fit(classifier(), batches([0, 1, 2, 3, 0, 1, 2, 3, 0, 1]))
    assert [count for _, count in notes.losses] == [4, 4, 2]
    wanted = sum(loss * count for loss, count in notes.losses) / 10
    assert wanted != pytest.approx(sum(loss for loss, _ in notes.losses) / 3, rel=1e-3)
    assert fitting.callback_metrics["train/loss"] == pytest.approx(wanted, rel=1e-5)


LABELS = [0, 1, 3, 3, 1, 0, 0, 3, 1, 3]  # none of class 2


@pytest.fixture(scope="module")
def guessing() -> ImageClassifier:
    """A network whose answers to ``images(10)`` differ."""
    model = classifier().eval()
    with torch.no_grad():
        model.network.fc.weight.mul_(20)
    return model


@pytest.mark.parametrize(("run", "stage"), [("validate", "val"), ("test", "test")])
def test_metrics_are_those_of_all_images(guessing: ImageClassifier, tmp_path: Path, run: str, stage: str) -> None:
    with torch.no_grad():
        logits = guessing.network(images(10))
    each = F.cross_entropy(logits, torch.tensor(LABELS), reduction="none")
    right = [guess == label for guess, label in zip(logits.argmax(1).tolist(), LABELS, strict=True)]
    assert 0 < sum(right) < 10
    of_batches = torch.stack([part.mean() for part in each.split(4)]).mean().item()
    assert each.mean().item() != pytest.approx(of_batches, rel=1e-2)

    getattr(running := trainer(tmp_path), run)(guessing, batches(LABELS), verbose=False)
    metrics = running.callback_metrics
    assert metrics[f"{stage}/loss"] == pytest.approx(each.mean().item(), rel=1e-5)
    assert metrics[f"{stage}/accuracy"] == pytest.approx(sum(right) / 10)


def test_each_class_is_counted(guessing: ImageClassifier, tmp_path: Path) -> None:
    with torch.no_grad():
        guesses = guessing.network(images(10)).argmax(1).tolist()
    counts = [[0] * 4 for _ in CLASSES]
    for label, guess in zip(LABELS, guesses, strict=True):
        counts[label][guess] += 1

    testing = trainer(tmp_path)
    for _ in range(2):  # the second test starts from nothing
        testing.test(guessing, batches(LABELS), verbose=False)
        assert guessing.confusion_counts.tolist() == counts

    write_summary(
        tmp_path / "summary.json", {"metrics": {name: float(value) for name, value in testing.callback_metrics.items()}}
    )
    recorded = read_summary(tmp_path / "summary.json")["metrics"]
    assert {name.rpartition("/")[2]: value for name, value in recorded.items() if name.count("/") == 2} == {
        "cat": pytest.approx(counts[0][0] / 3),
        "dog": pytest.approx(counts[1][1] / 3),
        "ship": pytest.approx(counts[3][3] / 4),  # there was no frog
    }


def test_a_loss_that_is_not_a_number_shows(tmp_path: Path) -> None:
    broken = images(10)
    broken[9] = float("nan")
    loader = DataLoader(TensorDataset(broken, torch.tensor(LABELS)), 4)
    assert math.isnan(trainer(tmp_path).validate(classifier(), loader, verbose=False)[0]["val/loss"])


def test_a_checkpoint_gives_weights(tmp_path: Path) -> None:
    model, fitting = classifier(), trainer(tmp_path, max_epochs=1)
    fitting.fit(model, batches([0, 1, 2, 3]))
    fitting.save_checkpoint(tmp_path / "last.ckpt")
    network = build_resnet18(channels=3, classes=4, weights=str(tmp_path / "last.ckpt"))
    assert all(map(torch.equal, network.state_dict().values(), model.network.state_dict().values()))


@torch.inference_mode()
def test_a_dry_step_trains_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Also while another split is evaluated, which may be loaded first."""
    with torch.inference_mode(mode=False):
        model = classifier().eval()
    model.trainer = trainer(tmp_path, precision="bf16-mixed")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states: list[Any] = []
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: states.append(optimizer.state))
    random = torch.get_rng_state()
    try:
        model.dry_step(torch.zeros(4, 3, 32, 32))
    finally:
        hook.remove()
    assert [len(state) for state in states] == [len(list(model.parameters()))]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert not model.training


def test_eight_images_are_learned(tmp_path: Path) -> None:
    fitting = trainer(tmp_path, max_epochs=12)
    fitting.fit(classifier(), batches([0, 1, 2, 3, 3, 2, 1, 0], size=8))
    assert fitting.callback_metrics["train/accuracy"] == 1.0


def test_compilation_leaves_the_names_of_weights() -> None:
    assert classifier(compile=True).state_dict().keys() == classifier().state_dict().keys()


@pytest.mark.slow
def test_compiled_is_the_same_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compiled, plain = classifier(compile=True).eval(), classifier().eval()
    with torch.no_grad():
        for count in (4, 2):
            torch.testing.assert_close(compiled(images(count)), plain(images(count)), rtol=1e-4, atol=1e-5)
    assert any(tmp_path.iterdir())
