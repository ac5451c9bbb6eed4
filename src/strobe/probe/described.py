"""Settings that can be changed from outside, as a training has them, and where the script made what trains."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from strobe.measure.untouched import matmul_precision
from strobe.probe.changes import BLAS, EACH, FOREACH, FUSED, MADE, is_convolutional

Made = Mapping[str, Sequence[Any]]  # by loader, trainer and optimizer


def of_a_trainer(trainer: Any, loaders: Sequence[Any]) -> dict[str, Any]:
    """As :func:`of_a_loop`, with whether the module is compiled, and for one that convolves images its memory layout
    and ``benchmark``: whether cuDNN tries its algorithms.
    """
    if not hasattr(trainer, MADE):
        return {}
    settings = of_a_loop({"loader": loaders, "trainer": [trainer], "optimizer": trainer.optimizers})
    module = trainer.lightning_module
    if is_convolutional(module):
        convolutions = [part.weight for part in module.modules() if isinstance(part, torch.nn.Conv2d)]
        if not torch.are_deterministic_algorithms_enabled():
            settings["benchmark"] = torch.backends.cudnn.benchmark
        settings["model"]["channels_last"] = any(not weight.is_contiguous() for weight in convolutions)
    settings["model"]["compile"] = getattr(module, "_compiler_ctx", None) is not None or any(
        hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) for part in module.modules()
    )
    return settings


def of_a_loop(parts: Made) -> dict[str, Any]:
    """The settings of a training, by its loaders and optimizers.

    Returns:
        ``data.batch_size``, where the script gave its only loader one; ``model``, how its optimizers update;
        ``matmul_precision``; ``environment``, the variables that can be changed; ``made``, where the script made each
        part. {} without :func:`strobe.probe.changes.install`.
    """
    made = {kind: [vars(one)[MADE] for one in several if MADE in vars(one)] for kind, several in parts.items()}
    if not any(made.values()):
        return {}
    loaders, optimizers = parts["loader"], parts["optimizer"]
    settings: dict[str, Any] = {"matmul_precision": matmul_precision(), "model": {}, "made": made}
    settings["environment"] = {BLAS: os.environ.get(BLAS)}
    if len(loaders) == 1 and "batch_size" in getattr(loaders[0], MADE, {"given": ()})["given"]:
        settings["data"] = {"batch_size": loaders[0].batch_size}
    if optimizers and all(type(one).__name__ in FUSED for one in optimizers):
        settings["model"]["fused"] = all(one.defaults.get("fused") is True for one in optimizers)
    if optimizers and all(type(one).__name__ in EACH for one in optimizers):
        settings["model"][FOREACH] = all(one.defaults.get(FOREACH) is True for one in optimizers)
    return settings
