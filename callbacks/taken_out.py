"""Tensors whose numbers leave torch without an operation: by ``Tensor.data``, as for NumPy, or ``Tensor.tolist``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_BASE: Any = torch._C.TensorBase
_watching: list[Callable[[Tensor], None]] = []


def watch(seen: Callable[[Tensor], None]) -> None:
    """Call ``seen`` with each such tensor, before its numbers leave, until `forget`, which gives both names back."""
    _watching.append(seen)
    for name, ours in _OURS.items():
        setattr(Tensor, name, ours)


def forget(seen: Callable[[Tensor], None]) -> None:
    """Safe to call twice. What somebody else has replaced meanwhile stays."""
    if seen in _watching:
        _watching.remove(seen)
    for name, ours in _OURS.items() if not _watching else ():
        if vars(Tensor).get(name) is ours:
            delattr(Tensor, name)


def _tell(tensor: Tensor) -> None:
    for seen in tuple(_watching):
        seen(tensor)


def _data(tensor: Tensor) -> Any:
    _tell(tensor)
    return _BASE.data.__get__(tensor)


def _set_data(tensor: Tensor, value: Tensor) -> None:
    _BASE.data.__set__(tensor, value)


def _tolist(tensor: Tensor) -> Any:
    _tell(tensor)
    return _BASE.tolist(tensor)


_OURS = {"data": property(_data, _set_data), "tolist": _tolist}
