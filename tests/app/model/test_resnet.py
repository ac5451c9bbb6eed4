"""resnet18 for other images, and where its weights come from."""

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import ResNet18_Weights, resnet18

from strobe.app.model.resnet import build_resnet18
from strobe.errors import ConfigError, DataError
from support.files import tree
from support.refusals import refusal
from support.server import Server, nobody, serving


def refused(weights: object, error: type[Exception] = DataError, **options: Any) -> str:
    """How weights are refused."""
    given = {"channels": 3, "classes": 10, **options, "weights": str(weights)}
    return refusal(lambda: build_resnet18(**given), error)


def serialised(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    """torchvision's own network, whose running statistics are not those of the start. Not to be changed."""
    torch.manual_seed(1)
    network = resnet18(num_classes=10)
    with torch.no_grad():
        network(torch.randn(4, 3, 32, 32))
    return network.eval()


@pytest.fixture(scope="module")
def weights(theirs: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of its weights."""
    path = tmp_path_factory.mktemp("weights") / "resnet18.pt"
    path.write_bytes(serialised(theirs.state_dict()))
    return str(path)


def differing(one: nn.Module, other: nn.Module) -> list[str]:
    """Names of the weights and buffers that are not equal."""
    states = one.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    return [name for name, value in states[0].items() if not torch.equal(value, states[1][name])]


@pytest.mark.parametrize("channels", [3, 13])
@pytest.mark.parametrize(
    ("stem", "size", "last"), [("imagenet", 32, 1), ("imagenet", 64, 2), ("cifar", 32, 4), ("cifar", 64, 8)]
)
def test_shapes(channels: int, stem: str, size: int, last: int) -> None:
    shapes: list[torch.Size] = []
    with torch.device("meta"):  # shapes without numbers
        network = build_resnet18(channels=channels, classes=7, stem=stem)
        network.layer4.register_forward_hook(lambda _module, _input, output: shapes.append(output.shape))
        logits = network(torch.empty(2, channels, size, size))
    assert logits.shape == (2, 7)
    assert shapes == [(2, 512, last, last)]


def test_a_random_start_is_torchvisions() -> None:
    torch.manual_seed(1)
    ours = build_resnet18(channels=3, classes=10)
    torch.manual_seed(1)
    assert differing(ours, resnet18(num_classes=10)) == []


def test_a_state_dict_of_torchvision(theirs: nn.Module, weights: str) -> None:
    ours = build_resnet18(channels=3, classes=10, weights=weights).eval()
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("channels", [1, 13])
def test_the_first_convolution_answers_to_grey_as_before(theirs: nn.Module, weights: str, channels: int) -> None:
    ours = build_resnet18(channels=channels, classes=10, weights=weights)
    assert differing(ours, theirs) == ["conv1.weight"]
    grey = torch.randn(2, 1, 64, 64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        here, there = ours.conv1(grey.expand(-1, channels, -1, -1)), theirs.conv1(grey.expand(-1, 3, -1, -1))
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)


def test_other_classes_start_the_last_layer_anew(theirs: nn.Module, weights: str) -> None:
    torch.manual_seed(3)
    ours = build_resnet18(channels=3, classes=4, weights=weights)
    torch.manual_seed(3)
    fresh = build_resnet18(channels=3, classes=4)
    assert differing(ours.fc, fresh.fc) == []
    assert set(differing(ours, theirs)) == {"fc.weight", "fc.bias"}


def test_a_checkpoint_of_this_project_of_13_channels(tmp_path: Path) -> None:
    theirs = build_resnet18(channels=13, classes=10)
    state = {f"network.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state, "hyper_parameters": {"lr": 0.1}}, tmp_path / "last.ckpt")
    ours = build_resnet18(channels=13, classes=10, weights=str(tmp_path / "last.ckpt"))
    assert differing(ours, theirs) == []


@pytest.mark.parametrize("channels", [3, 13])
def test_another_stem(weights: str, channels: int) -> None:
    text = refused(weights, ConfigError, channels=channels, stem="cifar")
    assert all(word in text for word in (f"model.weights={weights}", "conv1.weight", "model.stem"))


@pytest.mark.parametrize(
    "content", [{}, [1, 2], torch.ones(3), {"state_dict": 3}, {7: torch.ones(3)}, {"fc.weight": torch.ones(2)}], ids=str
)
def test_weights_of_something_else(tmp_path: Path, content: object) -> None:
    path = tmp_path / "weights.pt"
    torch.save(content, path)
    text = refused(path, ConfigError)
    assert f"model.weights={path} does not fit resnet18" in text


class Touches:
    """Makes a file when a reader that trusts its input unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.path,)


SMALL = serialised({"conv1.weight": torch.ones(64, 3, 7, 7)})


@pytest.mark.parametrize(
    "content",
    [b"", b"no weights", SMALL[:5000], SMALL[:-100], pickle.dumps([1])],
    ids=["empty", "text", "cut short", "without end", "plain pickle"],
)
def test_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    text = refused(path)
    assert f"model.weights={path} cannot be read as weights" in text


def test_a_file_that_runs_code(tmp_path: Path) -> None:
    path, made = tmp_path / "weights.pt", tmp_path / "made"
    torch.save({"conv1.weight": Touches(made)}, path)
    assert "cannot be read as weights" in refused(path)
    assert not made.exists()
    torch.load(path, weights_only=False)
    assert made.exists()  # or the file would have been harmless


@pytest.mark.parametrize("name", ["nowhere.pt", "."])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert f"model.weights={path} is not a file" in refused(path, ConfigError)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch's folder of downloaded weights, empty."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Server]:
    """A server of "published" weights, whose address says their checksum as torchvision's does."""
    torch.manual_seed(4)
    payload = serialised(resnet18().state_dict())
    with serving(payload) as server:
        server.url = f"{server.base}/resnet18-{hashlib.sha256(payload).hexdigest()[:8]}.pth"
        monkeypatch.setattr(ResNet18_Weights.IMAGENET1K_V1.value, "url", server.url)
        yield server


def test_published_weights_are_downloaded_once(published: Server) -> None:
    torch.manual_seed(4)
    theirs = resnet18()
    for _ in range(2):
        assert differing(build_resnet18(channels=3, classes=1000, weights="imagenet"), theirs) == []
    assert published.asked == [None]


@pytest.mark.parametrize(
    "fault", [{"stop_after": 5000}, {"payload": b"other"}, {"status": 404}], ids=["cut off", "altered", "gone"]
)
def test_a_bad_download_is_no_random_start(published: Server, cache: Path, fault: dict[str, object]) -> None:
    vars(published).update(fault)
    text = refused("imagenet")
    assert all(word in text for word in (published.url, "model.weights=FILE", "model.weights=null"))
    assert tree(cache) == {}


def test_a_damaged_copy_in_the_cache(published: Server, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / published.url.rpartition("/")[2]).write_bytes(b"damaged")
    assert published.url in refused("imagenet")


def test_offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nobody() as address:
        monkeypatch.setattr(ResNet18_Weights.IMAGENET1K_V1.value, "url", f"{address}/resnet18-f37072fd.pth")
        text = refused("imagenet")
    assert all(
        word in text for word in (f"{address}/resnet18-f37072fd.pth", "Connection refused", "model.weights=null")
    )
    assert tree(cache) == {}
