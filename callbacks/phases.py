"""The phases of a step and how long each took, from the actions that Lightning reports to its profiler.

Lightning --profile("[Strategy]...backward")--> StandIn, in the place of trainer.profiler
                                                  | blocks[action]: made on first use
                                                  v
torch's optimizer hooks ------------------------> Phases: the stack, whose innermost phase counts
                                                  | show(phase)
                                                  v
                                                PhaseClock: how long; PhaseRanges (trace.py): what a trace shows
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import update_wrapper
from types import MethodType
from typing import Any

from .clock import Clock, Phases
from .columns import OWNED
from .device_clock import DeviceClock
from .lightnings import PassThroughProfiler, Profiler
from .owners import (
    AROUND_BACKWARD,
    BATCH_HOOKS,
    BETWEEN_HOOKS,
    CLIPPING,
    MODULE_HOOKS,
    SCHEDULER,
    around_backward,
    class_of,
    idle_hooks,
    names,
)

_OF_STRATEGY = {"batch_to_device": "transfer", "training_step": "forward", "backward": "backward"}
_OF_MODULE = {
    "optimizer_step": "optimizer",
    "optimizer_zero_grad": "optimizer",
    "configure_gradient_clipping": OWNED + CLIPPING,
    "lr_scheduler_step": OWNED + SCHEDULER,
    **dict.fromkeys(BATCH_HOOKS, "prepare"),
}
_NO_PHASE = nullcontext()


class PhaseWatch:
    """Tells phases what Lightning does, by what it reports to ``trainer.profiler``, whose place a stand-in takes.

    Lightning names what it does: ``[_TrainingEpochLoop].train_dataloader_next``,
    ``[Strategy]SingleDeviceStrategy.backward``, ``[Callback]ModelCheckpoint.on_train_batch_end`` and so on.
    Actions nest (with automatic optimization, forward and backward run inside the optimizer's closure); the
    innermost known one counts, so that the phases are disjoint and add up. A hook is told apart by whose it is, as
    ``callbacks/<name>``. With manual optimization Lightning reports no backward, but the hooks before and after it;
    an optimizer that a module steps without Lightning's knowledge is seen by torch's own hooks.
    """

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self.profiler = StandIn(_Blocks(phases, {}, ()), PassThroughProfiler())
        self.by_hand = False  # whether a backward pass runs that Lightning does not report
        self._automatic: bool | None = None  # who optimizes: Lightning, or the module

    def install(self, trainer: Any) -> None:
        """Begin to watch; a second call does nothing."""
        if trainer.profiler is self.profiler:
            return
        # Kept after `remove`, which happens within an action that is still to be passed on when it stops.
        inner = trainer.profiler
        kind = StandIn if type(inner).__name__ == "PassThroughProfiler" else _PassesOn
        # Lightning reports also hooks that do nothing: they interrupt no phase.
        blocks = _Blocks(self.phases, names(trainer.callbacks), idle_hooks(trainer))
        self.profiler = trainer.profiler = kind(blocks, inner)
        self._automatic = None
        self.look(trainer.lightning_module)
        self.phases.watch_updates()

    def look(self, module: Any) -> None:
        """See who optimizes; again when hooks may have turned a module to manual optimization."""
        automatic = module.automatic_optimization
        if automatic == self._automatic:
            return
        self._automatic, blocks = automatic, self.profiler.blocks
        name, timed = type(module).__name__, around_backward(module)
        for hook in AROUND_BACKWARD:  # they tell nothing where Lightning reports backward passes
            owner = OWNED + name if hook in timed else None
            block = blocks.of(owner) if automatic else _AroundBackward(self, hook, owner)
            blocks[f"[LightningModule]{name}.{hook}"] = block

    def remove(self, trainer: Any) -> None:
        """Stop watching; a second call does nothing."""
        self.phases.forget()
        self.by_hand = False
        if trainer.profiler is self.profiler:
            inner = self.profiler.inner
            while isinstance(inner, StandIn) and not inner.blocks.phases.hooks:  # of a recorder that was removed before
                inner = inner.inner
            trainer.profiler = inner


class StandIn(Profiler):
    """Takes the place of ``trainer.profiler``, which does nothing itself, and enters the phase of each action.

    It is no part of the watch, and only the one below has ``__getattr__``: Python finds the attributes of an object
    with that, or whose ``vars`` were used, in several times as long, and a step needs a hundred of them.
    """

    def __init__(self, blocks: "_Blocks", inner: Any) -> None:
        self.inner = inner  # the trainer's own, of either Lightning; first, as `__getattr__` needs it
        super().__init__()
        self.blocks = blocks

    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]
        """A look-up, in a fraction of the time that Lightning's own takes."""
        return self.blocks[action_name]

    def start(self, action_name: str) -> None:
        self.blocks[action_name].__enter__()

    def stop(self, action_name: str) -> None:
        if action_name in self.blocks:  # else it has started before this watched
            self.blocks[action_name].__exit__(None, None, None)

    def summary(self) -> str:
        return str(self.inner.summary())

    def setup(self, *args: Any, **kwargs: Any) -> None:
        self.inner.setup(*args, **kwargs)

    def describe(self) -> None:
        self.inner.describe()

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        self.inner.teardown(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the trainer has its own profiler."""
        return _itself, (self.inner,)

    def __del__(self) -> None:
        """Do nothing: Lightning's own would tear down the trainer's profiler, which is still in use."""


def _itself(one: Any) -> Any:
    return one


class _PassesOn(StandIn):
    """The stand-in of a script's own profiler, to which it passes each action on."""

    profile = Profiler.profile  # by `start` and `stop`

    def __getattr__(self, name: str) -> Any:
        """Its attributes, such as ``recorded_durations``."""
        if name == "inner":  # not set yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start(self, action_name: str) -> None:
        self.inner.start(action_name)
        super().start(action_name)

    def stop(self, action_name: str) -> None:
        super().stop(action_name)
        self.inner.stop(action_name)


class _Phase:
    """An action that is one phase, as a context manager. Written out, as a step has many; it is used each time."""

    __slots__ = ("phase", "phases")

    def __init__(self, phases: Phases, phase: str) -> None:
        self.phases, self.phase = phases, phase

    def __enter__(self) -> None:
        phases, phase = self.phases, self.phase
        phases.stack.append(phase)
        phases.show(phase)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        stack = self.phases.stack
        if stack:
            stack.pop()
        self.phases.show(stack[-1] if stack else None)


class _AroundBackward:
    """A module's hook before or after a backward pass, between which that runs where Lightning does not report it."""

    def __init__(self, watch: PhaseWatch, hook: str, owner: str | None) -> None:
        self.watch, self.hook = watch, hook
        self.owner = owner  # to whom the hook's own time is charged; None if it does nothing

    def __enter__(self) -> None:
        phases = self.watch.phases
        if self.hook == AROUND_BACKWARD[1] and self.watch.by_hand and "backward" in phases.stack:
            self.watch.by_hand = False
            phases.leave()
        if self.owner:
            phases.enter(self.owner)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        phases = self.watch.phases
        if self.owner:
            phases.leave()
        if self.hook == AROUND_BACKWARD[0] and "backward" not in phases.stack:
            self.watch.by_hand = True
            phases.enter("backward")


class _Blocks(dict[str, AbstractContextManager[Any]]):
    """The context manager of each of Lightning's actions (some 20 in a step), made on first use."""

    def __init__(self, phases: Phases, callbacks: Mapping[str, str], idle: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(idle, _NO_PHASE))
        self.phases = phases
        self._callbacks = callbacks  # their names, by their state keys

    def __missing__(self, action: str) -> AbstractContextManager[Any]:
        block = self[action] = self.of(self._phase_of(action))
        return block

    def of(self, phase: str | None) -> AbstractContextManager[Any]:
        """Of an action that is this phase; None for one that contains others."""
        return _Phase(self.phases, phase) if phase else _NO_PHASE

    def _phase_of(self, action: str) -> str | None:
        owner, _, hook = action.rpartition(".")
        kind, _, name = owner.partition("]")
        if kind == "[Callback":
            return OWNED + self._callbacks.get(name, class_of(name))
        if kind == "[Strategy":
            return _OF_STRATEGY.get(hook)
        if kind == "[LightningDataModule":
            return "prepare" if hook in BATCH_HOOKS else None
        if kind == "[LightningModule":
            return OWNED + name if hook in (*MODULE_HOOKS, *BETWEEN_HOOKS) else _OF_MODULE.get(hook)
        if action == "optimizer_step":  # manual optimization
            return "optimizer"
        return "data_wait" if action == "[_TrainingEpochLoop].train_dataloader_next" else None


class PhaseClock(Clock):
    """Attributes each moment of a step of Lightning's to one phase."""

    def __init__(self, device: DeviceClock | None = None) -> None:
        super().__init__(device)
        self.watch = PhaseWatch(self)
        self._charged: list[_Charged] = []

    def install(self, trainer: Any) -> None:
        """Begin to watch; a second call does nothing."""
        self.watch.install(trainer)
        self.collect(True)

    def watch_calls(self, objects: Iterable[Any], *methods: str) -> None:
        """Charge such calls, which Lightning does not report, to the object's class, until `remove`."""
        for owner in objects:
            for method in methods:
                self._charged.append(charged := _Charged(self, owner, method))
                setattr(owner, method, charged)

    def remove(self, trainer: Any) -> None:
        """Stop watching; a second call does nothing."""
        self.watch.remove(trainer)
        self.collect(False)
        for charged in self._charged:
            charged.end()
        self._charged = []


class _Charged:
    """A method whose time is charged to its owner; copies and pickles of the owner have the original method."""

    def __init__(self, clock: PhaseClock, owner: Any, name: str) -> None:
        update_wrapper(self, method := getattr(owner, name))
        self._clock, self._owner, self._name = clock, owner, name
        self._own, self._ended = vars(owner).get(name), False  # what the object itself had for it
        self._method, self._phase = method, OWNED + type(owner).__name__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._clock.is_elsewhere():
            return self._method(*arguments, **named)
        self._clock.enter(self._phase)
        try:
            return self._method(*arguments, **named)
        finally:
            self._clock.leave()

    def end(self) -> None:
        """Restore the method; if it is charged again meanwhile, when that ends."""
        self._ended, own = True, vars(self._owner)
        while isinstance(charged := own.get(self._name), _Charged) and charged._ended:
            del own[self._name]
            if charged._own is not None:
                setattr(self._owner, self._name, charged._own)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_was, (self._owner, self._name, self._own)


def _as_it_was(owner: Any, name: str, own: Any) -> Any:
    return own or MethodType(getattr(type(owner), name), owner)
