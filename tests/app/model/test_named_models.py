"""Networks by name: fitted to channels, classes and sizes, or refused; trained, resumed, and started from files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from lightning import Trainer
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import squeezenet1_1
from torchvision.models.vision_transformer import VisionTransformer

from strobe.app.config.models import torchvision_models
from strobe.app.config.schema import NamedModelConfig
from strobe.app.model.named import NamedClassifier
from strobe.app.model.timm import TimmClassifier
from strobe.app.model.torchvision import TorchvisionClassifier
from strobe.app.model.weights import first_convolution
from strobe.app.tuning.trainee import Trainee
from strobe.errors import ConfigError, DataError
from strobe.measure.timing import Block
from support.interruptions import before_each_step, raising
from support.refusals import refusal
from support.runs import ALL, CHECKPOINTS, Train

DEFAULTS = {name: value for name, value in vars(NamedModelConfig()).items() if name != "_target_"}
NAMES = torchvision.models.list_models(module=torchvision.models)


pytestmark = pytest.mark.filterwarnings("ignore:.*(does not have many workers|have no `val_dataloader`)")


def size(name: str) -> float:
    return float(torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"])


FAMILIES = {torchvision.models.get_model_builder(name).__module__: name for name in sorted(NAMES, key=size)[::-1]}


def made(name: str, kind: type[NamedClassifier] = TorchvisionClassifier, side: int = 64, **options: Any) -> Any:
    given = {"classes": tuple("abcdefg"), "channels": 13, "batch_size": 2, "image_size": (side, side)}
    return kind(**{**DEFAULTS, "name": name, **given, **options})


def test_the_names_that_the_source_holds_are_those_that_torchvision_lists() -> None:
    assert sorted(torchvision_models()) == sorted(NAMES)


@pytest.mark.parametrize(
    "name",
    [name if name in FAMILIES.values() else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_every_name_is_fitted_to_channels_and_classes(name: str) -> None:
    side = TorchvisionClassifier.usual_side(None, name)  # type: ignore[arg-type]
    with torch.device("cpu" if name.startswith("regnet") else "meta"):  # regnet computes its widths with tensors
        network = made(name, side=side).network  # which tries it on images of this size
    assert network.get_submodule(first_convolution(network)).in_channels == 13


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("resnet5", {}, ["model.name=resnet5 is not", "did you mean resnet50"]),
        ("fasterrcnn_resnet50_fpn", {}, ["not a classification model of torchvision"]),
        ("vit_b_16", {"side": 50}, ["50x50 pixels", "patch size", "data.size=224"]),
        ("maxvit_t", {}, ["64x64 pixels", "data.size=224"]),
        ("alexnet", {"side": 32}, ["32x32 pixels", "data.size=224"]),
        ("mobilenet_v3_small", {"side": 32, "batch_size": 1}, ["1 image of 13 channels", "data.batch_size=2 or more"]),
        ("levit_128s", {"kind": TimmClassifier, "side": 30}, ["30x30 pixels", "data.size=224"]),
        ("resnet5", {"kind": TimmClassifier}, ["not a classification model of timm", "did you mean resnet50"]),
    ],
)
def test_what_cannot_be_fitted_is_refused(name: str, options: dict[str, Any], words: list[str]) -> None:
    with torch.device("meta"):
        said = refusal(lambda: made(name, **options), ConfigError)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mobilenet_v3_small", TorchvisionClassifier),
        ("regnet_y_400mf", TorchvisionClassifier),
        ("shufflenet_v2_x0_5", TorchvisionClassifier),
        ("test_vit", TimmClassifier),
        ("test_convnext.r160_in1k", TimmClassifier),
    ],
)
def test_they_train_on_tiles_of_13_channels(name: str, kind: type[NamedClassifier], tmp_path: Path) -> None:
    model = made(name, kind, channels_last=True)
    before = [weight.clone() for weight in model.network.parameters()]
    data = TensorDataset(torch.randn(2, 13, 64, 64), torch.tensor([0, 6]))
    trainer = Trainer(accelerator="cpu", default_root_dir=tmp_path, fast_dev_run=True, enable_model_summary=False)
    trainer.fit(model, DataLoader(data, 2))
    assert any(not torch.equal(old, new) for old, new in zip(before, model.network.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "kind"), [("mobilenet_v3_small", TorchvisionClassifier), ("test_vit", TimmClassifier)]
)
def test_a_dry_step_takes_images_as_the_network_does(name: str, kind: type[NamedClassifier]) -> None:
    model = made(name, kind).to(torch.bfloat16)
    model.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    taken: list[torch.dtype] = []
    hook = register_module_forward_pre_hook(lambda _, given: taken.append(given[0].dtype))
    try:
        model.dry_step(torch.zeros(2, 13, 64, 64))
    finally:
        hook.remove()
    assert set(taken) == {torch.bfloat16}


FAMOUS = [f"model=torchvision model.name={name}" for name in ("resnet50", "efficientnet_b0", "vit_b_16")]
LEAST = ("data.batch_size=2", "data.val_batch_size=10")  # of models that take long on a CPU


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        "model=torchvision model.name=mobilenet_v3_small",
        "model=timm model.name=test_vit",
        *(" ".join((famous, *LEAST)) for famous in FAMOUS),
    ],
)
def test_a_run_ends_with_a_verdict(given: str, train: Train) -> None:
    ended = train(*given.split(), "ceilings=true", "ceilings_seconds=0.3", "trainer.limit_train_batches=8", whole=True)
    assert ended.code == 0, ended.output
    assert given.split()[1].rpartition("=")[2] in ended.output
    assert ended.summary["ceilings"]["model"] > 0
    assert ended.summary["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("given", FAMOUS)
def test_a_search_tries_them(given: str, sample_root: Path, tmp_path: Path) -> None:
    own = ("data=sample", f"data.root={sample_root}", "data.tiles_per_class=10", "trainer=cpu", "threads=1", *LEAST)
    with Trainee([*own, *given.split(), "model.channels_last=true"], tmp_path, timeout=300) as trainee:
        for trained in (trainee.start(), trainee.turn(0.1)):
            assert isinstance(trained, Block), trained
            assert trained.images >= 2


def test_a_run_resumes_exactly_though_dropout_draws(
    train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = ("model=torchvision", "model.name=squeezenet1_1", CHECKPOINTS, ALL, "test=false")
    given += ("trainer.limit_train_batches=3", "checkpoint.every_n_steps=1")
    whole = train(*given, whole=True, name="whole")
    assert whole.code == 0, whole.output
    with monkeypatch.context() as patch:
        end = DataError("the end")
        before_each_step(patch, lambda model, _: model.trainer.global_step == 2 and raising(end))
        assert train(*given, whole=True, name="half").code == 1
    rest = train(*given, f"ckpt_path={tmp_path}/half/checkpoints/last.ckpt", whole=True, name="rest")
    assert rest.code == 0, rest.output
    one, other = (
        torch.load(ended.directory / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for ended in (whole, rest)
    )
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


def test_weights_from_a_file_keep_what_fits(tmp_path: Path) -> None:
    theirs, path = squeezenet1_1(num_classes=10), tmp_path / "squeezenet.pt"
    torch.save(theirs.state_dict(), path)
    ours = made("squeezenet1_1", weights=str(path)).network
    own, given = ours.state_dict(), theirs.state_dict()
    changed = {key for key in given if given[key].shape != own[key].shape or not torch.equal(given[key], own[key])}
    assert changed == {"features.0.weight", "classifier.1.weight", "classifier.1.bias"}
    torch.testing.assert_close(own["features.0.weight"].sum(1), given["features.0.weight"].sum(1))
    said = refusal(lambda: made("mobilenet_v3_small", weights=str(path)), ConfigError)
    assert f"model.weights={path} does not fit mobilenet_v3_small" in said


def test_positions_and_auxiliary_outputs_are_fitted() -> None:
    def transformer(side: int) -> nn.Module:
        return VisionTransformer(side, 16, num_layers=1, num_heads=1, hidden_dim=4, mlp_dim=4)

    state = {**transformer(64).state_dict(), "AuxLogits.fc.bias": torch.zeros(1), "aux1.fc.bias": torch.zeros(1)}
    network = transformer(32)
    fitted = TorchvisionClassifier.fitted(None, network, state)  # type: ignore[arg-type]
    network.load_state_dict(fitted)
    assert fitted["encoder.pos_embedding"].shape == (1, 5, 4)
