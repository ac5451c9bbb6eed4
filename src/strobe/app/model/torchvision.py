"""torchvision's classification models, by name: https://docs.pytorch.org/vision/stable/models.html."""

from collections.abc import Sequence
from typing import Any

import torchvision
from torch import Tensor, nn
from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings

from strobe.app.model.named import NamedClassifier
from strobe.app.model.weights import first_convolution, published

WITHOUT_AUXILIARY = {"aux_logits": False, "init_weights": True}  # further outputs, which help no modern optimizer
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")


class TorchvisionClassifier(NamedClassifier):
    """One of them, without auxiliary outputs; vit and maxvit are built for the size of the images."""

    library = "torchvision"

    def names(self) -> Sequence[str]:
        """Of all that classify images."""
        return list(torchvision.models.list_models(module=torchvision.models))

    def make(self, name: str, channels: int, classes: int, size: tuple[int, int]) -> nn.Module:
        """As torchvision initialises it, with another first convolution where images have other than 3 channels."""
        family = torchvision.models.get_model_builder(name).__module__.rpartition(".")[2]
        options: dict[str, dict[str, Any]] = {
            "googlenet": WITHOUT_AUXILIARY,
            "inception": WITHOUT_AUXILIARY,
            "maxvit": {"input_size": size},
            "vision_transformer": {"image_size": size[0]},
        }
        given = options.get(family, {})
        network: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes, **given)
        if channels != 3:
            place = first_convolution(network)
            old: Any = network.get_submodule(place)
            new = nn.Conv2d(
                channels, old.out_channels, old.kernel_size, old.stride, old.padding, bias=old.bias is not None
            )
            network.set_submodule(place, new)
        return network

    def usual_side(self, name: str) -> int:
        """That of the published weights."""
        return int(_weights(name).transforms.keywords["crop_size"])

    def published(self, name: str) -> dict[str, Tensor]:
        """The best that torchvision publishes."""
        return published(_weights(name))

    def fitted(self, network: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Without auxiliary outputs, and with a vision transformer's positions for this image size."""
        state = {key: value for key, value in state.items() if not key.startswith(AUXILIARY)}
        if isinstance(network, VisionTransformer) and "encoder.pos_embedding" in state:
            return dict(interpolate_embeddings(network.image_size, network.patch_size, state))
        return state


def _weights(name: str) -> Any:
    return torchvision.models.get_model_weights(name).DEFAULT
