"""torchvision's resnet18 for other numbers of channels and classes, and with a stem for small images."""

from torch import nn
from torchvision.models import ResNet18_Weights, resnet18
from torchvision.models.resnet import ResNet

from strobe.app.model.weights import from_file, load, published


def build_resnet18(*, channels: int, classes: int, stem: str = "imagenet", weights: str | None = None) -> ResNet:
    """A resnet18 (He et al. 2016, arXiv:1512.03385) from images of so many ``channels`` to ``classes``.

    ``stem`` is ``imagenet`` (7x7, stride 2, max-pool) or ``cifar`` (3x3, stride 1, none). ``weights`` are None for a
    random start, ``imagenet`` for the published ones, or a file: a state dict of torchvision's resnet18, or a
    checkpoint of a run. A first convolution for three channels is spread over the channels, and a last layer for other
    classes starts at random. Raises a DataError if weights cannot be downloaded or read, a ConfigError if there are
    none, or they belong to another network.
    """
    network = resnet18(num_classes=classes)
    if stem == "cifar":
        network.conv1 = nn.Conv2d(channels, 64, kernel_size=3, stride=1, padding=1, bias=False)
        network.maxpool = nn.Identity()
    elif channels != 3:
        network.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    if weights is not None:
        state = published(ResNet18_Weights.IMAGENET1K_V1) if weights == "imagenet" else from_file(weights)
        load(network, state, classes, told=weights, kind="resnet18 with this model.stem")
    return network
