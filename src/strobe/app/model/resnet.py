"""torchvision's resnet18 for other numbers of channels and classes, and with a stem for small images."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import ResNet18_Weights, resnet18
from torchvision.models.resnet import ResNet

from strobe.errors import ConfigError, DataError


def build_resnet18(*, channels: int, classes: int, stem: str = "imagenet", weights: str | None = None) -> ResNet:
    """A resnet18 (He et al. 2016, arXiv:1512.03385).

    Args:
        channels: of the images.
        classes: outputs.
        stem: ``imagenet`` (7x7, stride 2, max-pool) or ``cifar`` (3x3, stride 1, none).
        weights: None for a random start, ``imagenet`` for the published ones, or a file: a state dict of
            torchvision's resnet18, or a checkpoint of a run of this project. A first convolution for three channels is
            spread over the channels, and a last layer for other classes starts at random. Raises a DataError if weights
            cannot be downloaded or read, a ConfigError if there are none, or they belong to another
            network.
    """
    network = resnet18(num_classes=classes)
    if stem == "cifar":
        network.conv1 = nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
        network.maxpool = nn.Identity()
    elif channels != 3:
        network.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    if weights is not None:
        _load(network, _published() if weights == "imagenet" else _from_file(weights), weights)
    return network


def _published() -> dict[str, Tensor]:
    weights = ResNet18_Weights.IMAGENET1K_V1
    try:
        return dict(weights.get_state_dict(progress=True, check_hash=True))
    except Exception as error:  # the network's, or whatever a damaged copy in torch's cache makes torch.load raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"model.weights=imagenet: {weights.url} could not be downloaded or read ({reason}); fetch it on a machine "
            f"with a network and give model.weights=FILE, or start at random with model.weights=null"
        ) from error


def _from_file(name: str) -> dict[str, Tensor]:
    if not Path(name).is_file():
        raise ConfigError(f"model.weights={name} is not a file; give a file, imagenet, or null for a random start")
    try:
        content: Any = torch.load(name, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(f"model.weights={name} cannot be read as weights; give a file that torch.save wrote") from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    items = state.items() if isinstance(state, dict) else ()
    return {str(key).removeprefix("network."): value for key, value in items if isinstance(value, Tensor)}


def _load(network: ResNet, state: dict[str, Tensor], name: str) -> None:
    own = network.state_dict()
    if "conv1.weight" in state and state["conv1.weight"].shape != own["conv1.weight"].shape:
        state["conv1.weight"] = _spread(state["conv1.weight"], own["conv1.weight"])
    if any(key in state and state[key].shape != own[key].shape for key in ("fc.weight", "fc.bias")):
        state |= {"fc.weight": own["fc.weight"], "fc.bias": own["fc.bias"]}
    odd = sorted(own.keys() ^ state.keys()) or [key for key in own if own[key].shape != state[key].shape]
    if odd:
        raise ConfigError(
            f"model.weights={name} does not fit resnet18 with this stem: {odd[0]} differs; "
            "give weights of a resnet18 with the same model.stem, or model.weights=null"
        )
    network.load_state_dict(state)


def _spread(given: Tensor, wanted: Tensor) -> Tensor:
    """A first convolution for other channels: each gets the mean, so a grey image gives the same response."""
    if given.shape[2:] != wanted.shape[2:]:
        return given
    channels = wanted.shape[1]
    return given.mean(1, keepdim=True).expand(-1, channels, -1, -1) * (given.shape[1] / channels)
