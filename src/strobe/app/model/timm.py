"""timm's models, by name: https://huggingface.co/docs/timm. An extra: ``pip install '.[timm]'``."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from strobe.app.model.named import NamedClassifier
from strobe.app.model.weights import unavailable
from strobe.errors import DataError


class TimmClassifier(NamedClassifier):
    """One of them; those with a fixed image size are built for the data's."""

    library = "timm"

    def names(self) -> Sequence[str]:
        """Of all, with and without the tag of published weights."""
        return [*_timm().list_models(), *_timm().list_pretrained()]

    def make(self, name: str, channels: int, classes: int, size: tuple[int, int]) -> nn.Module:
        """As timm initialises it."""
        options = {"num_classes": classes, "in_chans": channels}
        try:
            network: nn.Module = _timm().create_model(name, img_size=size, **options)
        except TypeError:  # of one that takes any size
            network = _timm().create_model(name, **options)
        return network

    def usual_side(self, name: str) -> int:
        """That of its published weights."""
        return int(_timm().get_pretrained_cfg(name).input_size[-1])

    def published(self, name: str) -> dict[str, Tensor]:
        """From the Hugging Face Hub."""
        try:
            return dict(_timm().create_model(name, pretrained=True).state_dict())
        except Exception as error:  # whatever the network and the Hub's client raise
            raise unavailable(f"timm's {name}", error) from error


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise DataError(f"model=timm cannot be used ({error}); install timm with: pip install '.[timm]'") from None
    return timm
