"""Changes to somebody else's training, made from outside before its script runs: ``install(["engine.num_workers=4"])``.

It runs in the script's own interpreter, also by this file's path, so it imports nothing from Strobe; and nothing heavy:
what a change is about is wrapped once the script imports it. Classes stay what they are. Each DataLoader, Trainer and
optimizer notes where the script made it, also when nothing is changed.
"""

import functools
import inspect
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

WANTED = "STROBE_CHANGES"  # the variable of the environment: a JSON list of overrides
MADE = "_strobe_made"  # the attribute of what the script made: {call, file, line, end_line, column, end_column, given}

LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context")
BESIDE_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
TRAINER = (
    *("precision", "accumulate_grad_batches", "log_every_n_steps", "benchmark"),
    *("val_check_interval", "check_val_every_n_epoch"),
)
MODEL = ("channels_last", "compile", "fused")
THREADS, MATMUL, BATCH_SIZE = "threads", "matmul_precision", "data.batch_size"
KEYS = (
    *(f"engine.{name}" for name in LOADER),
    *(f"trainer.{name}" for name in TRAINER),
    *(f"model.{name}" for name in MODEL),
    *(THREADS, MATMUL, BATCH_SIZE),
)
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # optimizers that have a fused update
FOREACH = "foreach"  # the other value of model.fused, beside true and false
LIBRARIES = ("site-packages", "dist-packages")

Asked = Mapping[str, Any]


def install(changes: Sequence[str] | None = None) -> None:
    """Let these changes be made, None: those of the environment; to be called once, before the script runs.

    Raises:
        ValueError: one of them cannot be made from outside.
    """
    texts = json.loads(os.environ.get(WANTED) or "[]") if changes is None else changes
    asked = {key: _value(typed) for key, _, typed in (text.partition("=") for text in texts)}
    if unknown := [key for key in asked if key not in KEYS]:
        raise ValueError(f"{', '.join(unknown)} cannot be changed from outside; what can be is {', '.join(KEYS)}")
    about: dict[str, Callable[[Any], None]] = {
        "torch": lambda torch: _change_torch(torch, asked),
        "torch.utils.data.dataloader": lambda module: _change_loaders(module.DataLoader, asked),
        "torchdata.stateful_dataloader.stateful_dataloader": (
            lambda module: _change_loaders(module.StatefulDataLoader, asked)
        ),
        "lightning.pytorch.trainer.trainer": lambda module: _change_trainers(module.Trainer, asked),
        "pytorch_lightning.trainer.trainer": lambda module: _change_trainers(module.Trainer, asked),
    }
    for name in [name for name in about if name in sys.modules]:
        about.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _OnImport(about))


class _OnImport(MetaPathFinder):
    """Calls a function with each of some modules once it is imported."""

    def __init__(self, about: Mapping[str, Callable[[Any], None]]) -> None:
        self._about = about

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As the other finders find it."""
        if name not in self._about:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
        loader: Any = spec and spec.loader
        if loader is not None:
            runs = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                runs(module)
                self._about[name](module)

            loader.exec_module = exec_module
        return spec


def _change_loaders(loader: Any, asked: Asked) -> None:
    made, signature = loader.__init__, inspect.signature(loader.__init__)
    places: dict[int, dict[str, Any] | None] = {}  # by the data set: Lightning makes some loaders once more

    @functools.wraps(made)  # so that Lightning reads the arguments' names
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        given = _given(signature, self, args, kwargs)
        made(self, **of_a_loader(given, asked))
        again = (maker := _maker(self)) is not None and maker.f_code.co_name == "_reinstantiate_wrapped_cls"
        place = places.get(id(self.dataset)) if again else _place(maker)
        places[id(self.dataset)] = place
        self.__dict__[MADE] = {"call": type(self).__name__, "given": sorted(given)} | (place or {})

    loader.__init__ = changed


def of_a_loader(given: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """The arguments of a DataLoader with what is asked for, as far as torch takes them together.

    A batch size is changed where the script gave one, for a batch sampler has its own.
    """
    wanted = {name: asked[f"engine.{name}"] for name in LOADER if f"engine.{name}" in asked}
    if BATCH_SIZE in asked and given.get("batch_size") is not None and given.get("batch_sampler") is None:
        wanted["batch_size"] = asked[BATCH_SIZE]
    found = {**given, **wanted}
    if wanted and not found.get("num_workers"):  # for which torch refuses these
        for name in BESIDE_WORKERS:
            if name in wanted or "num_workers" in wanted:
                found.pop(name, None)
    return found


def _change_trainers(trainer: Any, asked: Asked) -> None:
    made, fit, signature = trainer.__init__, trainer.fit, inspect.signature(trainer.fit)

    @functools.wraps(made)
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **of_a_trainer(kwargs, asked))
        self.__dict__[MADE] = {"call": type(self).__name__, "given": sorted(kwargs)} | (_place(_maker(self)) or {})

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = _given(signature, self, args, kwargs)
        if "model" in given:
            given["model"] = changed_model(given["model"], asked)
        return fit(self, **given)

    trainer.__init__, trainer.fit = changed, fitted


def of_a_trainer(given: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """The arguments of a Trainer with what is asked for; what another argument decides stays as it is."""
    wanted = {name: asked[f"trainer.{name}"] for name in TRAINER if f"trainer.{name}" in asked}
    if _has("Precision", given.get("plugins")) or getattr(given.get("strategy"), "_precision_plugin", None):
        wanted.pop("precision", None)
    if _has("GradientAccumulationScheduler", given.get("callbacks")):
        wanted.pop("accumulate_grad_batches", None)
    if given.get("deterministic"):
        wanted.pop("benchmark", None)
    return {**given, **wanted}


def changed_model(model: Any, asked: Asked) -> Any:
    """The module as it is to be given to ``Trainer.fit``: in another memory layout, compiled, or not compiled."""
    import torch

    own = getattr(model, "_orig_mod", model)  # of a compiled one
    last = asked.get("model.channels_last")
    if last is not None and is_convolutional(own):
        own.to(memory_format=torch.channels_last if last else torch.contiguous_format)
    compiled = asked.get("model.compile")
    if compiled is None or compiled is (own is not model):
        return model
    return torch.compile(own) if compiled else own


def is_convolutional(model: Any) -> bool:
    """Whether a module convolves images, and nothing that channels-last is not defined for."""
    import torch

    return any(isinstance(part, torch.nn.Conv2d) for part in model.modules()) and all(
        weight.dim() < 5 for weight in model.parameters()
    )


def _change_torch(torch: Any, asked: Asked) -> None:
    if THREADS in asked:
        _keep(torch, "set_num_threads", asked[THREADS])
    if MATMUL in asked:
        _keep(torch, "set_float32_matmul_precision", asked[MATMUL])
    for name in FUSED:
        optimizer = getattr(torch.optim, name)
        if "fused" in inspect.signature(optimizer.__init__).parameters:
            _change_optimizers(optimizer, asked.get("model.fused"))


def _keep(torch: Any, name: str, value: Any) -> None:
    """Set it now, and to the same whenever the script sets it; loader processes set their own."""
    given, home = getattr(torch, name), os.getpid()

    @functools.wraps(given)
    def kept(asked: Any) -> Any:
        return given(value if os.getpid() == home else asked)

    given(value)
    setattr(torch, name, kept)


def _change_optimizers(optimizer: Any, update: bool | str | None) -> None:
    made, signature = optimizer.__init__, inspect.signature(optimizer.__init__)

    @functools.wraps(made)
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        given = _given(signature, self, args, kwargs)
        if hasattr(given.get("params"), "__next__"):
            given["params"] = list(given["params"])  # of which there may be two attempts
        try:
            made(self, **of_an_optimizer(given, update))
        except RuntimeError:  # parameters that have no fused update
            made(self, **given)
        self.__dict__[MADE] = {"call": type(self).__name__, "given": sorted(given)} | (_place(_maker(self)) or {})

    optimizer.__init__ = changed


def of_an_optimizer(given: Mapping[str, Any], update: bool | str | None) -> dict[str, Any]:
    """The arguments of an optimizer with another update: true, false, or ``foreach``; None leaves them as they are."""
    if update is None or given.get("differentiable"):
        return dict(given)
    return {**given, "fused": update is True} | ({} if update is False else {"foreach": update == FOREACH})


def described(trainer: Any, loaders: Sequence[Any]) -> dict[str, Any]:
    """Settings of a training that only these changes ask for, and ``made``: where the script made what trains.

    Args:
        trainer: that fits.
        loaders: those that it trains with.

    Returns:
        ``data.batch_size``, where the script gave its only loader one; ``model``, as far as it can be changed;
        ``matmul_precision``; ``made``, by ``loader``, ``trainer`` and ``optimizer``. {} without :func:`install`.
    """
    import torch

    if MADE not in vars(trainer):
        return {}
    found: dict[str, Any] = {"matmul_precision": torch.get_float32_matmul_precision(), "model": {}}
    module, optimizers = trainer.lightning_module, trainer.optimizers
    if len(loaders) == 1 and "batch_size" in getattr(loaders[0], MADE, {"given": ()})["given"]:
        found["data"] = {"batch_size": loaders[0].batch_size}
    if is_convolutional(module):
        convolutions = [part.weight for part in module.modules() if isinstance(part, torch.nn.Conv2d)]
        found["model"]["channels_last"] = any(not weight.is_contiguous() for weight in convolutions)
    found["model"]["compile"] = getattr(module, "_compiler_ctx", None) is not None
    if optimizers and all(type(one).__name__ in FUSED for one in optimizers):
        found["model"]["fused"] = all(one.defaults.get("fused") is True for one in optimizers)
    parts = {"loader": loaders, "trainer": [trainer], "optimizer": optimizers}
    made = {kind: [vars(one)[MADE] for one in several if MADE in vars(one)] for kind, several in parts.items()}
    return found | {"made": made}


def _value(typed: str) -> Any:
    try:
        return json.loads(typed)
    except ValueError:  # a text
        return typed


def _given(signature: inspect.Signature, self: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by name, without ``self``; raises a TypeError as the call would."""
    bound = signature.bind(self, *args, **kwargs)
    named: dict[str, Any] = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(name, {})
    named.pop(next(iter(signature.parameters)))
    return named


def _has(kind: str, parts: Any) -> bool:
    """Whether one of the parts, or the only one, is of a class of such a name."""
    several = parts if isinstance(parts, list | tuple) else [parts]
    return any(kind in base.__name__ for part in several for base in type(part).__mro__)


def _maker(made: Any) -> FrameType | None:
    """The frame that called the constructor of an object, whose innermost one has just returned."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (_constructs(frame, made) or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    return frame


def _place(frame: FrameType | None) -> dict[str, Any] | None:
    """What the script called: its file, lines (from 1) and columns (from 0); None for a library's call."""
    if frame is None or _is_a_librarys(frame.f_code.co_filename):
        return None
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    file = os.path.realpath(frame.f_code.co_filename)
    return {"file": file, "line": line, "end_line": end_line, "column": column, "end_column": end_column}


def _constructs(frame: FrameType, made: Any) -> bool:
    """Whether a frame is a constructor's of the object, or what Lightning wraps around one."""
    code = frame.f_code
    if code.co_name == "wrapper" and code.co_filename.endswith("utilities/data.py"):
        return True
    return code.co_name == "__init__" and any(value is made for value in frame.f_locals.values())


@functools.cache
def _is_a_librarys(file: str) -> bool:
    standard = sysconfig.get_paths()["stdlib"]
    return bool({*LIBRARIES} & {*Path(file).parts}) or file.startswith((f"{standard}{os.sep}", "<"))
