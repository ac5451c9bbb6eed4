"""A small CIFAR-10 in the layout of the published one."""

import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torchvision import datasets

FOLDER = "cifar-10-batches-py"
TRAINING = [f"data_batch_{number}" for number in range(1, 6)]
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def python2_string(text: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(text)) + text


def published_form(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    """A batch file as Python 2 pickled the published ones: byte strings throughout, and NumPy's old module names."""
    dtype = b"cnumpy\ndtype\n(%bK\x00K\x01tR(K\x03%bNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb" % (
        python2_string(b"u1"),
        python2_string(b"|"),
    )
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t%btR" % python2_string(b"b")
    shape = b"(M%bM%bt" % (struct.pack("<H", len(labels)), struct.pack("<H", 3072))
    array = empty + b"(K\x01" + shape + dtype + b"\x89" + python2_string(pixels.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K%c" % label for label in labels) + b"e"
    return b"\x80\x02}(%b%b%b%bu." % (python2_string(b"data"), array, python2_string(b"labels"), numbers)


def generated(root: Path) -> Path:
    """Five batches of 40 training images and one of 20 test images, evenly of ten classes."""
    (root / FOLDER).mkdir(parents=True)
    for number, name in enumerate([*TRAINING, "test_batch"]):
        count = 20 if name == "test_batch" else 40
        pixels = np.random.default_rng(number).integers(0, 256, (count, 3072), dtype=np.uint8)
        (root / FOLDER / name).write_bytes(published_form(pixels, [index % 10 for index in range(count)]))
    (root / FOLDER / "batches.meta").write_bytes(pickle.dumps({"label_names": NAMES, "num_vis": 3072}, protocol=2))
    return root


def publish(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torchvision believe that the set in ``root`` is the published one."""

    def checksum(name: str) -> str:
        return hashlib.md5((root / FOLDER / name).read_bytes()).hexdigest()

    monkeypatch.setattr(datasets.CIFAR10, "train_list", [[name, checksum(name)] for name in TRAINING])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", checksum("test_batch")]])
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": checksum("batches.meta")})
