"""Operators and kernels of traces, as torch's ``key_averages()`` counts them; times in microseconds."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strobe.records.columns import ANNOTATION, KERNEL, MEMORY, NONE, ON_DEVICE, OPERATOR, STEP, Ints, Mask
from strobe.traces.rank import COMMUNICATION, RankTrace

# As in torch-tb-profiler 0.4.3 (its profiler/tensor_core.py), and later kernels of CUTLASS, cuDNN and cuBLAS.
_TENSOR_CORES = re.compile(
    r"[hs]884|[hsc]1688|i8816|16816|hmma|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv1x1|conv2d_c1_k1"
    r"|direct_group|xmma_(?!.*ffma)|tensorop|tensor_op|imma|wmma|gmma|i16832|nvjet"
    # Attention, by FlashAttention, which has no other kernels, and by CUTLASS, which has some without these cores;
    # and products of torch.compile, whose names do not tell the type: float32 is rare where it makes them.
    r"|flash_(fwd|bwd)_(kernel|splitkv_kernel|dq_dk_dv)|FlashAttn(Fwd|Bwd)Sm"
    r"|fmha_cutlass[FB]_(f32\w*_sm80|(f16|bf16)\w*_sm(70|75|80))|triton_tem_fused_\w*(mm|convolution|attention)"
)
# Of cuBLAS and CUTLASS, for float32: without tensor cores.
_FLOAT32_PRODUCT = re.compile(r"sgemm|xmma_gemm_f32.*ffma|simt_s|gemmSN_\w+_kernel<float")


@dataclass
class Operator:
    """Calls of one name; ``device``: what they themselves started there; ``shapes``: calls by shapes of the inputs."""

    name: str
    is_range: bool = False
    calls: int = 0
    own: float = 0.0
    total: float = 0.0
    device: float = 0.0
    shapes: Counter[str] = field(default_factory=Counter)


@dataclass
class Kernel:
    """Runs of one name on a device; ``kind``: computing, communication or copies; ``by``: operators that started it."""

    name: str
    kind: str
    tensor_cores: bool
    calls: int = 0
    total: float = 0.0
    longest: float = 0.0
    occupied: float = 0.0  # sum of time by estimated occupancy
    by: Counter[str] = field(default_factory=Counter)

    @property
    def occupancy(self) -> float | None:
        """The mean estimated occupancy, a share; None where it is not known."""
        return self.occupied / self.total / 100 if self.occupied and self.total else None


def operators(ranks: Iterable[RankTrace]) -> list[Operator]:
    """Operators and ranges of all ranks, most own time first; on a device's trace most own time there."""
    rows: dict[tuple[str, bool], Operator] = {}
    for rank in ranks:
        at = rank.columns
        _, own = rank.nest
        places, again = at.of(OPERATOR, ANNOTATION), _again(rank)
        by = starters(rank)
        device = np.bincount(by[by >= 0], at.length[by >= 0], len(at.start))
        for key, inside in groups(at.name[places] * 2 + (at.kind[places] == ANNOTATION)).items():
            chosen = places[inside]
            name, is_range = at.names.texts[key // 2], bool(key % 2)
            row = rows.setdefault((name, is_range), Operator(name, is_range))
            counted = chosen[~again[chosen]]
            row.calls += len(counted)
            row.own += float(own[chosen].sum())
            row.total += float(at.length[counted].sum())
            row.device += float(device[chosen].sum())
            for shape, calls in zip(*np.unique(at.shape[counted], return_counts=True), strict=True):
                if shape != NONE:
                    row.shapes[at.names.texts[shape]] += int(calls)
    by_device = any(row.device for row in rows.values())
    return sorted(rows.values(), key=lambda row: (-row.device if by_device else -row.own, -row.own, row.name))


def kernels(ranks: Iterable[RankTrace]) -> list[Kernel]:
    """What ran on the devices of all ranks, most time first."""
    rows: dict[str, Kernel] = {}
    for rank in ranks:
        at = rank.columns
        places = at.of(*ON_DEVICE)
        by = starters(rank)
        for number, inside in groups(at.name[places]).items():
            chosen, name = places[inside], at.names.texts[number]
            kind = "communication" if COMMUNICATION.match(name) else "computing"
            if at.kind[chosen[0]] != KERNEL:
                kind = "copies"
            row = rows.setdefault(name, Kernel(name, kind, kind == "computing" and uses_tensor_cores(name)))
            row.calls += len(chosen)
            row.total += float(at.length[chosen].sum())
            row.longest = max(row.longest, float(at.length[chosen].max()))
            row.occupied += float((at.length[chosen] * at.extra[chosen]).sum())
            for place in by[chosen]:
                row.by[at.names.texts[at.name[place]] if place >= 0 else ""] += 1
    return sorted(rows.values(), key=lambda row: (-row.total, row.name))


def starters(rank: RankTrace) -> Ints:
    """Of every event on a device the place of the innermost operator or range that started it; -1 where unknown."""
    at, (parent, _) = rank.columns, rank.nest
    found: Ints = np.where(rank.started_by >= 0, parent[rank.started_by], -1)
    found[(found >= 0) & (at.kind[found] == STEP)] = -1
    return found


@cache
def uses_tensor_cores(kernel: str) -> bool:
    """Whether a kernel's name is one of those that compute on tensor cores."""
    return _TENSOR_CORES.search(kernel) is not None


@cache
def multiplies_float32(kernel: str) -> bool:
    """Whether a kernel's name is one of those that multiply matrices of float32, and not on tensor cores."""
    return _FLOAT32_PRODUCT.search(kernel) is not None and not uses_tensor_cores(kernel)


def _again(rank: RankTrace) -> Mask:
    """The events that are all that one of the same name calls: torch counts the two as one call."""
    at, (parent, _) = rank.columns, rank.nest
    inside = rank.host[(parent[rank.host] >= 0) & (at.kind[rank.host] != MEMORY)]
    children = np.bincount(parent[inside], minlength=len(at.start))
    found = np.zeros(len(at.start), bool)
    found[inside] = (children[parent[inside]] == 1) & (at.name[inside] == at.name[parent[inside]])
    return found


def groups(keys: NDArray[np.integer[Any]]) -> dict[int, Ints]:
    """The places of each key."""
    if not len(keys):
        return {}
    order = np.argsort(keys, kind="stable")
    values, first = np.unique(keys[order], return_index=True)
    return dict(zip(values.tolist(), np.split(order, first[1:]), strict=True))
