"""CIFAR-10's batch files: pickled dictionaries of images and labels."""

import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

SAFE = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    """Builds arrays and plain values: a pickle from elsewhere could otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no array")
        return super().find_class(module, name)


def read_batch(path: Path, classes: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Images (N, 3, 32, 32) and labels, below ``classes``, of one batch file.

    Raises:
        OSError, ValueError: it cannot be read, or is not such a file.
    """
    content = _read(path)
    try:
        images, labels = np.asarray(content["data"]), [int(label) for label in content["labels"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has no images and labels") from error
    if images.dtype != np.uint8 or images.shape != (len(labels), 3072):
        raise ValueError(f"{path} has {len(labels)} labels for images of {images.dtype} {images.shape}")
    if not set(labels) <= set(range(classes)):
        raise ValueError(f"{path} has labels that are not from 0 to {classes - 1}")
    return images.reshape(-1, 3, 32, 32), labels


def read_classes(path: Path) -> tuple[str, ...]:
    """The class names in ``batches.meta``; raises as :func:`read_batch`."""
    names = _read(path).get("label_names")
    if not isinstance(names, list) or not names:
        raise ValueError(f"{path} names no classes")
    return tuple(_text(name) for name in names)


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        content = _unpickle(path, file)
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no dictionary")
    return {_text(key): value for key, value in content.items()}


def _unpickle(path: Path, file: BinaryIO) -> Any:
    try:
        # Python 2 wrote the published files; latin1 keeps their bytes.
        return _ArraysOnly(file, encoding="latin1").load()
    except OSError:
        raise
    except Exception as error:  # whatever damaged bytes make the unpickler stumble over
        raise ValueError(f"{path} cannot be unpickled: {error}") from error


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value
