"""Changes to somebody else's training, made from outside before its script runs: ``install(["engine.num_workers=4"])``.

It runs in the script's own interpreter, also by this file's path, so it imports nothing from Strobe; and nothing heavy:
what a change is about is wrapped once the script imports it. Classes stay what they are. Each DataLoader, Trainer and
optimizer notes where the script made it, also when nothing is changed.
"""

import ctypes
import functools
import importlib.util
import inspect
import json
import os
import random
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import Thread, _DummyThread, get_ident, main_thread
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakSet

WANTED = "STROBE_CHANGES"  # the variable of the environment: a JSON list of overrides
LOSSES, FIRST = "STROBE_LOSSES", 50  # names the file into which the losses of so many first steps go, one a line
MADE = "_strobe_made"  # the attribute of what the script made, see `_note`

LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context")
BESIDE_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
TRAINER: tuple[str, ...] = ("precision", "accumulate_grad_batches", "log_every_n_steps", "benchmark", "detect_anomaly")
TRAINER += ("val_check_interval", "check_val_every_n_epoch")
MODEL = ("channels_last", "compile", "fused")
THREADS, MATMUL, BATCH_SIZE, VARIABLE = "threads", "matmul_precision", "data.batch_size", "environment."
BLAS = "OPENBLAS_NUM_THREADS"  # which NumPy reads once it is imported
MALLOC = {"MALLOC_MMAP_MAX_": -4, "MALLOC_TRIM_THRESHOLD_": -1}  # of glibc, and what mallopt(3) calls each
KEYS = (
    *(f"engine.{name}" for name in LOADER),
    *(f"trainer.{name}" for name in TRAINER),
    *(f"model.{name}" for name in MODEL),
    *(THREADS, MATMUL, BATCH_SIZE, *(VARIABLE + name for name in (BLAS, *MALLOC))),
)
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # optimizers that have a fused update
EACH = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")  # and those that have only a foreach one
FOREACH = "foreach"  # the other value of model.fused, beside true and false
LOADERS = {  # modules, and the class in each that scripts iterate over
    "torch.utils.data.dataloader": "DataLoader",
    "torchdata.stateful_dataloader.stateful_dataloader": "StatefulDataLoader",
}
ASKED = ("strobe.attach.callback", "strobe.attach.watch")  # imported once a script itself asks for what Strobe records
_training_threads = WeakSet[Thread]()  # in which an optimizer has stepped, beside the main one

Asked = Mapping[str, Any]


def install(changes: Sequence[str] | None = None) -> None:
    """Have these changes made; by default those that the environment lists. Call it once, before the script runs.

    Raises:
        ValueError: one of them cannot be made from outside.
    """
    texts = json.loads(os.environ.get(WANTED) or "[]") if changes is None else changes
    asked = {key: _value(typed) for key, _, typed in (text.partition("=") for text in texts)}
    if unknown := [key for key in asked if key not in KEYS]:
        raise ValueError(f"{', '.join(unknown)} cannot be changed from outside; what can be is {', '.join(KEYS)}")
    os.environ |= {"TORCHDYNAMO_DISABLE": "1"} if asked.get("model.compile") is False else {}
    for key, value in asked.items():
        if key.startswith(VARIABLE) and value is not None:
            os.environ[name := key.removeprefix(VARIABLE)] = str(value)
            if name in MALLOC:  # the variable is read before Python starts
                ctypes.CDLL(None).mallopt(MALLOC[name], value)
    about: dict[str, Callable[[Any], None]] = {
        "torch": lambda torch: _change_torch(torch, asked),
        **_of_loaders(lambda kind: _change_loaders(kind, asked)),
        "lightning.pytorch.trainer.trainer": lambda module: _change_trainers(module.Trainer, asked),
        "pytorch_lightning.trainer.trainer": lambda module: _change_trainers(module.Trainer, asked),
    }
    once_imported(about)


def once_imported(about: dict[str, Callable[[Any], None]]) -> None:
    """Call what waits for a module, now if it is there."""
    for name in [name for name in about if name in sys.modules]:
        about.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, Imports(about))


class Imports(MetaPathFinder):
    """Calls what waits for a module once it has been imported."""

    def __init__(self, waiting: dict[str, Callable[[Any], None]]) -> None:
        self._waiting = waiting
        self._searched: str | None = None

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """The module's own, with what waits behind it; whoever asks need not import it."""
        if name not in self._waiting or name == self._searched:
            return None
        self._searched = name  # the search below comes here, too
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searched = None
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            self._waiting.pop(name)(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def give_batches(give: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Let ``give(loader, iterate)`` begin each loop over a DataLoader; ``iterate(loader)`` begins it as without.

    Only in threads of this process that train, and until the script asks for what Strobe records.
    """
    home = os.getpid()

    def take_over(kind: Any) -> None:
        iterate = kind.__iter__

        @functools.wraps(iterate)
        def iterated(self: Any) -> Any:
            return give(self, iterate) if is_unasked(home) else iterate(self)

        if not hasattr(iterate, "__wrapped__"):  # or it has been taken over
            kind.__iter__ = iterated

    once_imported(_of_loaders(take_over))


def is_unasked(home: int) -> bool:
    """Whether this is a thread that trains, in the process ``home``, whose script has not asked for records."""
    if os.getpid() != home or any(name in sys.modules for name in ASKED):
        return False
    return get_ident() == main_thread().ident or _calling_thread() in _training_threads


def note_thread() -> None:
    """An optimizer has stepped in the calling thread: it is one that trains."""
    if get_ident() != main_thread().ident and (thread := _calling_thread()) is not None:
        _training_threads.add(thread)


def _calling_thread() -> Thread | None:
    """The thread that calls; None if Python has not started it, as it has not started autograd's."""
    known = (one for one in threading.enumerate() if one.ident == get_ident() and not isinstance(one, _DummyThread))
    return next(known, None)


def _of_loaders(change: Callable[[Any], None]) -> dict[str, Callable[[Any], None]]:
    """What waits for the modules of DataLoaders: to change their classes."""
    return dict.fromkeys(LOADERS, lambda module: change(getattr(module, LOADERS[module.__name__])))


def _change_loaders(loader: Any, asked: Asked) -> None:
    made, signature = loader.__init__, inspect.signature(loader.__init__)
    places: dict[int, dict[str, Any] | None] = {}  # by the data set: Lightning makes some loaders once more

    @functools.wraps(made)  # so that Lightning reads the arguments' names
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        given = _given(signature, self, args, kwargs)
        made(self, **of_a_loader(given, asked))
        again = (maker := _maker(self)) is not None and maker.f_code.co_name == "_reinstantiate_wrapped_cls"
        place = places[id(self.dataset)] = places.get(id(self.dataset)) if again else _place(maker)
        _note(self, loader, given, place)

    loader.__init__ = changed


def of_a_loader(given: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """The arguments of a DataLoader with what is asked for, as far as torch takes them together.

    A batch size is changed where the script gave one, for a batch sampler has its own.
    """
    wanted = {name: asked[f"engine.{name}"] for name in LOADER if f"engine.{name}" in asked}
    if BATCH_SIZE in asked and given.get("batch_size") is not None and given.get("batch_sampler") is None:
        wanted["batch_size"] = asked[BATCH_SIZE]
    arguments = {**given, **wanted}
    if wanted and not arguments.get("num_workers"):  # for which torch refuses these
        for name in BESIDE_WORKERS:
            if name in wanted or "num_workers" in wanted:
                arguments.pop(name, None)
    return arguments


def _change_trainers(trainer: Any, asked: Asked) -> None:
    made, fit, signature = trainer.__init__, trainer.fit, inspect.signature(trainer.fit)

    @functools.wraps(made)
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **of_a_trainer(kwargs, asked))
        _note(self, trainer, kwargs, _place(_maker(self)))

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = _given(signature, self, args, kwargs)
        if "model" in given:
            given["model"] = changed_model(given["model"], asked)
        if file := os.environ.get(LOSSES):
            self.callbacks.append(_losses(type(self), Path(file)))
            _seed()
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
    """The module as it is to be given to ``Trainer.fit``: in another memory layout, or compiled."""
    import torch

    own = getattr(model, "_orig_mod", model)  # of a compiled one
    last = asked.get("model.channels_last")
    if last is not None and is_convolutional(own):
        own.to(memory_format=torch.channels_last if last else torch.contiguous_format)
    return torch.compile(own) if asked.get("model.compile") and own is model else model


def is_convolutional(model: Any) -> bool:
    """Whether a module convolves images, and nothing that channels-last is not defined for."""
    import torch

    return any(isinstance(part, torch.nn.Conv2d) for part in model.modules()) and all(
        weight.dim() < 5 for weight in model.parameters()
    )


def _losses(trainer: Any, file: Path) -> Any:
    """A callback, of the Trainer's own Lightning, that keeps the losses of the first steps."""
    package = next(kind.__module__ for kind in trainer.__mro__ if kind.__module__.endswith(".trainer.trainer"))
    lines: list[str] = []

    def on_train_batch_end(_: Any, trainer: Any, *given: Any) -> None:
        outputs = given[1]  # after the module
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None and len(lines) < FIRST:
            lines.append(f"{float(loss) * trainer.accumulate_grad_batches!r}\n")  # by which Lightning divides it
            file.write_text("".join(lines))

    callback = sys.modules[package.removesuffix(".trainer.trainer")].Callback
    return type("Losses", (callback,), {"on_train_batch_end": on_train_batch_end})()


def _seed() -> None:
    """The same random numbers with each set of changes."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def _change_torch(torch: Any, asked: Asked) -> None:
    if os.environ.get(LOSSES):
        _seed()
    for key, name in ((THREADS, "set_num_threads"), (MATMUL, "set_float32_matmul_precision")):
        if key in asked:
            _keep(torch, name, asked[key])
    if MATMUL in asked:
        _refuse(type(torch.backends.cuda.matmul), ("allow_tf32", "fp32_precision"))
    for name, update in (*((name, "fused") for name in FUSED), *((name, FOREACH) for name in EACH)):
        optimizer = getattr(torch.optim, name)
        if update in inspect.signature(optimizer.__init__).parameters:
            _change_optimizers(optimizer, asked.get("model.fused"))


def _keep(torch: Any, name: str, value: Any) -> None:
    """Set it now, and to the same whenever the script sets it; loader processes set their own."""
    given, home = getattr(torch, name), os.getpid()

    @functools.wraps(given)
    def kept(asked: Any) -> Any:
        return given(value if os.getpid() == home else asked)

    given(value)
    setattr(torch, name, kept)


def _refuse(kind: Any, names: Sequence[str]) -> None:
    """What the script sets here is ignored: Strobe has set the precision. Processes that are forked set their own.

    The one for all backends, ``torch.backends.fp32_precision``, holds only where none was set for products.
    """
    given, home = kind.__setattr__, os.getpid()

    @functools.wraps(given)
    def refused(self: Any, name: str, value: Any) -> None:
        if name not in names or os.getpid() != home:
            given(self, name, value)

    kind.__setattr__ = refused


def _change_optimizers(optimizer: Any, update: bool | str | None) -> None:
    made, signature = optimizer.__init__, inspect.signature(optimizer.__init__)

    @functools.wraps(made)
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        given = _given(signature, self, args, kwargs)
        made(self, **of_an_optimizer(given, update, fusing="fused" in signature.parameters))
        _note(self, optimizer, given, _place(_maker(self)))

    optimizer.__init__ = changed


def of_an_optimizer(given: Mapping[str, Any], update: bool | str | None, *, fusing: bool = True) -> dict[str, Any]:
    """The arguments of an optimizer with another update: true, false, or ``foreach``; None leaves them as they are.

    One without a fused update, not ``fusing``, keeps its own in place of that.
    """
    if update is None or given.get("differentiable"):
        return dict(given)
    if not fusing:
        return {**given, FOREACH: True} if update == FOREACH else dict(given)
    return {**given, "fused": update is True} | ({} if update is False else {"foreach": update == FOREACH})


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


def _note(made: Any, kind: type, given: Iterable[str], place: Mapping[str, Any] | None) -> None:
    """Note of an object its class, the names of arguments, and the place; and of a constructor of the class's own
    whether it is the one to change, because it takes no arguments but its own, or ``passes`` others on.
    """
    classes = type(made).__mro__
    own = any("__init__" in vars(one) for one in classes[: classes.index(kind)])
    takes = inspect.signature(type(made).__init__).parameters.values() if own else ()  # also in Lightning's wrapper
    passes = any(one.kind is one.VAR_KEYWORD for one in takes)
    about = {"call": type(made).__name__, "constructor": own and not passes, "passes": passes, "given": sorted(given)}
    vars(made)[MADE] = about | {**(place or {})}


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
    names = ("line", "end_line", "column", "end_column")
    place = dict(zip(names, list(frame.f_code.co_positions())[frame.f_lasti // 2], strict=True))
    return {"file": os.path.realpath(frame.f_code.co_filename), **place}


def _constructs(frame: FrameType, made: Any) -> bool:
    """Whether a frame is a constructor's of the object, or what Lightning wraps around one."""
    code = frame.f_code
    if code.co_name == "wrapper" and code.co_filename.endswith("utilities/data.py"):
        return True
    return code.co_name == "__init__" and any(value is made for value in frame.f_locals.values())


@functools.cache
def _is_a_librarys(file: str) -> bool:
    standard = f"{sysconfig.get_paths()['stdlib']}{os.sep}"
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts) or file.startswith((standard, "<"))
