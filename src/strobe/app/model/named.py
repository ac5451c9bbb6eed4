"""Networks of a library, by their names, fitted to the data's channels, classes and size."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from strobe.app.config.models import check_name
from strobe.app.model.classifier import ImageClassifier
from strobe.app.model.weights import from_file, load
from strobe.errors import ConfigError
from strobe.present.format import counted


class NamedClassifier(ImageClassifier):
    """One whose network comes from a library; a subclass knows the library.

    What a network draws at random in a step, as dropout does, is a function of seed, epoch, batch and rank, so a
    resumed run repeats an uninterrupted one.
    """

    library: str

    def __init__(self, *, name: str, **options: Any) -> None:
        self.name, self._seed = name, torch.initial_seed()
        super().__init__(**options)

    def build_network(self, *, channels: int, classes: int, stem: str, weights: str | None) -> nn.Module:
        """The network; raises a ConfigError for an unknown name, and where it cannot take the data's images."""
        name = self.name
        check_name(name, self.names(), self.library)
        height, width = self.hparams["image_size"]
        images = (min(self.hparams["batch_size"], 2), channels, height, width)
        try:
            network = self.make(name, channels, classes, (height, width))
            _rehearse(network, images, classes)
        except Exception as error:
            usual, reason = self.usual_side(name), str(error).partition("\n")[0]
            larger = f"it is made for {usual}x{usual}: set data.size={usual} for photos, or " if usual != width else ""
            remedy = "set data.batch_size=2 or more, or " if images[0] == 1 else larger
            raise ConfigError(
                f"model.name={name} cannot train on {counted(images[0], 'image')} of {channels} channels and "
                f"{height}x{width} pixels ({reason}); {remedy}choose another model.name"
            ) from error
        if weights is not None:
            state = self.published(name) if weights == "imagenet" else from_file(weights)
            load(network, self.fitted(network, state), classes, told=weights, kind=name)
        return network

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed what the step draws."""
        trainer = self.trainer
        key = [self._seed, trainer.current_epoch, batch_idx, trainer.global_rank]
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))

    @abstractmethod
    def names(self) -> Sequence[str]:
        """What ``model.name`` may be."""

    @abstractmethod
    def make(self, name: str, channels: int, classes: int, size: tuple[int, int]) -> nn.Module:
        """A network that starts at random, for images of this height and width, which it may or may not take."""

    @abstractmethod
    def usual_side(self, name: str) -> int:
        """Pixels of a side of the images that the network was made for."""

    @abstractmethod
    def published(self, name: str) -> dict[str, Tensor]:
        """The published weights; raises a DataError where they cannot be had."""

    def fitted(self, network: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights as this network names and shapes them, but for those of its first and its last layer."""
        return state


def _rehearse(network: nn.Module, images: tuple[int, ...], classes: int) -> None:
    """A step's forward pass that only computes shapes; if that goes wrong, a real one, which raises if it does too."""
    try:
        _forward(network, images, classes, "meta")
    except Exception:  # perhaps only of an operator that knows no shapes
        _forward(network, images, classes, "cpu")


def _forward(network: nn.Module, images: tuple[int, ...], classes: int, device: str) -> None:
    state = {key: torch.empty_like(value, device=device).copy_(value) for key, value in network.state_dict().items()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        logits = functional_call(network, state, (torch.zeros(images, device=device),))
    if not isinstance(logits, Tensor) or logits.shape != (images[0], classes):
        raise TypeError("it does not answer with one number for each class")
