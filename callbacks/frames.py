"""What the frames of a stack tell: the user's own line, the library that it calls, and what torch does meanwhile."""

import ast
import linecache
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from .columns import (
    BETWEEN,
    CALLING_BACKWARD,
    COLLATING,
    ENDING_WORKERS,
    GPU_CHECK,
    JACOBIANS,
    LOADING,
    LOGGING,
    PARAMETRIZING,
    RECOMPUTING,
    SAMPLING,
    SAVING,
    THREAD,
)

Line = tuple[str, int, str]  # file, number, function
Stack = Sequence[FrameType]  # the innermost first; once a generator yields, its frame forgets what called it
Place = tuple[str, Line | None, str]  # phase, line, library

LOADS = ("data_wait", LOADING)  # phases

# Ends of the paths of files.
_WORKER = ("/torch/utils/data/_utils/worker.py", "/torchdata/stateful_dataloader/worker.py")
_PROBE = "/strobe/probe/loader.py"
_LIGHTNINGS = ("/lightning/pytorch/", "/pytorch_lightning/")
_TRAINER, _LIGHTNING_MODULE = (
    tuple(each + file for each in _LIGHTNINGS) for file in ("trainer/trainer.py", "core/module.py")
)
_OUTERMOST = (*_TRAINER, _PROBE, *_WORKER)  # from here outwards nothing trains or loads
_FETCHING = ("/torch/utils/data/_utils/fetch.py", _PROBE)  # ask a data set for samples
_DATALOADER = "/torch/utils/data/dataloader.py"
_AUTOGRAD = "/torch/autograd/__init__.py"  # whose backward pass may begin long before a parameter has a gradient
_MODULE_CALL = "/torch/nn/modules/module.py"  # runs a network, or a part of one
_TORCHS_WORK = (  # phases, a file and a function that the stack leads through, and what that is; the first one counts
    (("backward",), "/torch/utils/checkpoint.py", "", RECOMPUTING),
    (("optimizer",), "/torch/optim/optimizer.py", "_accelerator_graph_capture_health_check", GPU_CHECK),
    (("data_wait", BETWEEN), _DATALOADER, "_shutdown_workers", ENDING_WORKERS),
    (("data_wait",), _DATALOADER, "_next_index", SAMPLING),
    (LOADS, "/torch/utils/data/_utils/collate.py", "", COLLATING),
    (("forward", "other"), "/torch/_functorch/eager_transforms.py", "wrapper_fn", JACOBIANS),  # of no other function
    (("forward", "other"), "/torch/autograd/functional.py", "jacobian", JACOBIANS),
)

# Parts of the paths of files.
_INSTALLED = ("/site-packages/", "/dist-packages/")
_COMPILED = ("/torch/_inductor/", "/torch/_functorch/_aot_autograd/")
_PASSING = ("/torch/utils/data/", _MODULE_CALL, "/transforms/v2/_container.py", "/transforms/v2/_transform.py")
_PASSING_FUNCTIONS = {"__getitem__", "__getitems__", "__iter__", "__next__", "__call__"}

_STROBE = f"{Path(__file__).absolute().parent.parent}/"
_NO_USERS = ("<", f"{sysconfig.get_path('stdlib')}/", _STROBE)  # beginnings of other paths

_TORCH = torch.__file__.removesuffix("__init__.py")
_LOOPS = tuple(f"{_TORCH}{name}" for name in ("optim/", "nn/utils/", "nn/modules/rnn.py"))
_TORCHS_NAMES = {"torch", "Tensor"}  # a module that computes with torch has one of them
_BESIDE_NETWORKS = {  # modules that have such a name, or are torch's, but are no part of a network
    "torch.serialization": SAVING,
    "lightning.fabric.utilities.cloud_io": SAVING,
    "lightning_fabric.utilities.cloud_io": SAVING,
    **{name: name for name in (PARAMETRIZING, "torchmetrics", "torch.utils.tensorboard")},
}


def place_of(phase: str, stack: Stack) -> Place:
    """Where a thread is that the clock says to be in this phase; the stack may know better in which one."""
    line, library = user_line(_within_fetch(stack) if phase in LOADS else stack)
    if phase.startswith(THREAD) and line is None:
        library = _outermost_package(stack)
    if phase == "forward" and leads_through(stack, _AUTOGRAD, "backward"):
        phase = "backward"
    if library == CALLING_BACKWARD and phase != "backward":
        return phase, line, ""
    for phases, file, function, work in _TORCHS_WORK:
        if phase in phases and leads_through(stack, file, function):
            # A loader ends its workers when it is asked for one batch too many.
            return BETWEEN if work == ENDING_WORKERS else phase, line, work
    if phase in LOADS and line is None:
        line = _library_line(stack)
    return phase, line, library


def located(line: Line | None) -> dict[str, Any]:
    """``file``, ``line``, ``function``, and ``code``, the text of a line of the user's own; all None without a line."""
    file, number, function = line or (None, None, None)
    code = linecache.getline(file, number).strip() if file and number and is_users(file) else None
    return {"file": file, "line": number, "function": function, "code": code or None}


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """The calling thread's stack, from this frame on; empty without a frame, as when the thread ends."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def user_line(stack: Stack) -> tuple[Line | None, str]:
    """The innermost line of the stack that is in no library, and the library that it calls, as ``_called`` tells it.

    None where training or loading is in none.
    """
    inner: list[FrameType] = []
    for each in stack:
        file = each.f_code.co_filename
        if file.endswith(_OUTERMOST):
            break
        if is_users(file):
            return (file, each.f_lineno, _function(each)), _called(inner) if inner else _called_in_c(each)
        if not file.startswith(_STROBE):
            inner.append(each)
    return None, ""


def user_lines(stack: Iterable[FrameType], *, beyond: bool = False) -> tuple[Line, ...] | None:
    """All lines of the stack that are in no library, the outermost first; None in what torch.compile has made.

    Also those ``beyond`` a Trainer, such as the one that calls it, if they are asked for.
    """
    lines: list[Line] = []
    for each in stack:
        file = each.f_code.co_filename
        if file.endswith(_OUTERMOST) and not beyond:
            break
        if any(part in file for part in _COMPILED):
            return None
        if is_users(file):
            lines.append((file, each.f_lineno, _function(each)))
    return tuple(reversed(lines))


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a file is of the user's own code, and of no library."""
    return not file.startswith(_NO_USERS) and not _is_installed(file)


def leads_through(stack: Stack, file: str, function: str = "") -> bool:
    """Whether the stack leads through a file, given by the end of its path, or through a function in it."""
    codes = (each.f_code for each in stack)
    return any(code.co_filename.endswith(file) and function in ("", code.co_name) for code in codes)


def instructions_of(frame: FrameType | None) -> int:
    """Which ones call an operation, from the innermost line of the user's own code on."""
    instructions = list[tuple[CodeType, int]]()
    for each in outwards(frame):
        instructions.append((each.f_code, each.f_lasti))
        if is_users(each.f_code.co_filename):
            break
    return hash(tuple(instructions))


def is_in_torchs_loop(frame: FrameType | None) -> bool:
    """Whether what calls an operation is code of torch that goes through weights, or time steps."""
    files = (each.f_code.co_filename for each in outwards(frame))
    return any(file.startswith(_LOOPS) for file in takewhile(lambda file: file.startswith(_TORCH), files))


def may_detach(frame: FrameType | None) -> bool:
    """Whether the line that calls torch has ``detach``, or may: autograd calls it, too, to keep a result."""
    caller = next((each for each in outwards(frame) if not each.f_code.co_filename.startswith(_TORCH)), None)
    line = "" if caller is None else linecache.getline(caller.f_code.co_filename, caller.f_lineno)
    return not line or "detach" in line


def _is_installed(file: str) -> bool:
    return any(part in file for part in _INSTALLED)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _within_fetch(stack: Stack) -> Stack:
    """The frames in which a data set makes samples, without those that ask for them; all where nothing asks."""
    asking = [place for place, each in enumerate(stack) if each.f_code.co_filename.endswith(_FETCHING)]
    return stack[: asking[-1]] if asking else stack


def _library_line(stack: Stack) -> Line | None:
    """The outermost function of a library that loads, such as a transform, where no line is the user's own.

    Its first line stands for all: what the user can change is the call. Functions within others are left out: most are
    what a decorator puts around the one that is meant.
    """
    line = None
    for each in stack:
        code, file = each.f_code, each.f_code.co_filename
        if file.endswith(_FETCHING):
            return line
        computes = _is_installed(file) and not any(part in file for part in _PASSING)
        if computes and code.co_name not in _PASSING_FUNCTIONS and ".<locals>." not in code.co_qualname:
            line = file, code.co_firstlineno, _function(each)
    return None


def _outermost_package(stack: Stack) -> str:
    """The installed package that a thread runs; empty if it runs none."""
    installed = [each for each in stack if _is_installed(each.f_code.co_filename)]
    return _module(installed[-1]).partition(".")[0] if installed else ""


def _called(inner: list[FrameType]) -> str:
    """The library that the outermost of these frames belongs to; empty if it computes with torch, as networks do."""
    outermost, modules = inner[-1], [_module(each) for each in inner]
    code = outermost.f_code
    if code.co_filename.endswith(_LIGHTNING_MODULE) and code.co_name in ("log", "log_dict"):  # whatever they call
        return LOGGING
    if any(each.f_code.co_filename.endswith(_AUTOGRAD) and each.f_code.co_name == "backward" for each in inner):
        return CALLING_BACKWARD
    for beside, library in _BESIDE_NETWORKS.items():
        if any(module.startswith(beside) for module in modules):
            return library
    network = any(each.f_code.co_filename.endswith(_MODULE_CALL) for each in inner)
    if network or not _TORCHS_NAMES.isdisjoint(outermost.f_globals):
        return ""
    package = modules[-1].partition(".")[0]
    return "" if package in _TORCHS_NAMES or code.co_filename.startswith("<string>") else package


def _called_in_c(frame: FrameType) -> str:
    """The installed library, beside torch, whose function this frame calls at this moment; it has no frame of its own.

    Only where the call begins with a global name, as in ``np.random.choice(...)``.
    """
    called = frame.f_globals.get(_callee(frame.f_code, frame.f_lasti))
    name = getattr(called, "__name__" if isinstance(called, type(sys)) else "__module__", None)
    package = name.partition(".")[0] if isinstance(name, str) else ""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package if package not in _TORCHS_NAMES and _is_installed(file) else ""


@lru_cache(maxsize=1024)
def _callee(code: CodeType, at: int) -> str:
    """The name with which the call at this instruction begins, if it is a global one; else empty."""
    first, last, begin, end = next(islice(code.co_positions(), max(0, at) // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        call = ast.parse(b"".join(lines), mode="eval").body
    except (SyntaxError, ValueError):  # of a file that has changed since
        return ""
    if not isinstance(call, ast.Call):
        return ""
    called = call.func
    while isinstance(called, ast.Attribute):
        called = called.value
    return called.id if isinstance(called, ast.Name) and called.id not in code.co_varnames else ""


def _function(frame: FrameType) -> str:
    """The function's name; of a comprehension that of the function around it; of a ``forward`` with its class.

    Outside of all functions it is what a file runs, in words.
    """
    around, inner, _ = frame.f_code.co_qualname.partition(".<locals>.<")
    if around.startswith("<"):
        return f"the top-level code of {Path(frame.f_code.co_filename).name}"
    name = around.rpartition(".")[2] if inner else frame.f_code.co_name
    return ".".join(around.rsplit(".", 2)[-2:]) if name == "forward" else name
