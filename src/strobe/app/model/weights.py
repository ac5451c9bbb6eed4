"""Weights to start from: published ones or a file, fitted to other channels and classes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum

from strobe.errors import ConfigError, DataError


def published(weights: WeightsEnum) -> dict[str, Tensor]:
    """Weights that torchvision publishes, from torch's cache or the network; raises a DataError without them."""
    try:
        return dict(weights.get_state_dict(progress=True, check_hash=True))
    except Exception as error:  # the network's, or whatever a damaged copy in torch's cache makes torch.load raise
        raise unavailable(weights.url, error) from error


def unavailable(what: str, error: Exception) -> DataError:
    """That published weights cannot be had, and what else there is."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(
        f"model.weights=imagenet: {what} could not be downloaded or read ({reason}); fetch it on a machine "
        f"with a network and give model.weights=FILE, or start at random with model.weights=null"
    )


def from_file(name: str) -> dict[str, Tensor]:
    """A state dict, or the network's part of a checkpoint of Strobe's.

    Raises a ConfigError if there is no such file, a DataError if it cannot be read.
    """
    if not Path(name).is_file():
        raise ConfigError(f"model.weights={name} is not a file; give a file, imagenet, or null for a random start")
    try:
        content: Any = torch.load(name, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(f"model.weights={name} cannot be read as weights; give a file that torch.save wrote") from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    items = state.items() if isinstance(state, dict) else ()
    return {str(key).removeprefix("network."): value for key, value in items if isinstance(value, Tensor)}


def load(network: nn.Module, state: dict[str, Tensor], classes: int, *, told: str, kind: str) -> None:
    """Start from ``state``.

    A first convolution for other channels is spread over the network's, and a last layer for other ``classes`` stays as
    it is. A ConfigError says that ``model.weights=told`` does not fit the ``kind`` of network.
    """
    own, state = network.state_dict(), dict(state)
    first = f"{first_convolution(network)}.weight"
    for key in own.keys() & state.keys():
        here, there = own[key].shape, state[key].shape
        if key == first and here != there:
            state[key] = _spread(state[key], own[key])
        elif here != there and here[:1] == (classes,) and here[1:] == there[1:]:
            state[key] = own[key]
    odd = sorted(own.keys() ^ state.keys()) or [key for key in own if own[key].shape != state[key].shape]
    if odd:
        raise ConfigError(
            f"model.weights={told} does not fit {kind}: {odd[0]} differs; give weights of such a network, or "
            "model.weights=null"
        )
    network.load_state_dict(state)


def first_convolution(network: nn.Module) -> str:
    """The name of the layer that takes the images; empty without a convolution."""
    return next((name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)), "")


def _spread(given: Tensor, wanted: Tensor) -> Tensor:
    """A first convolution for other channels: each gets the mean, so a grey image gives the same response."""
    if given.shape[2:] != wanted.shape[2:]:
        return given
    channels = wanted.shape[1]
    return given.mean(1, keepdim=True).expand(-1, channels, -1, -1) * (given.shape[1] / channels)
