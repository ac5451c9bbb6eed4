"""The phases of a step and how long each took, from the actions that Lightning reports to its profiler."""

from collections.abc import Iterable
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

_BEFORE_BACKWARD, _AFTER_BACKWARD = AROUND_BACKWARD
_OF_STRATEGY = {"batch_to_device": "transfer", "training_step": "forward", "backward": "backward"}
_OF_MODULE = {
    "optimizer_step": "optimizer",
    "optimizer_zero_grad": "optimizer",
    "on_before_backward": _BEFORE_BACKWARD,
    "on_after_backward": _AFTER_BACKWARD,
    "configure_gradient_clipping": OWNED + CLIPPING,
    "lr_scheduler_step": OWNED + SCHEDULER,
    **dict.fromkeys(BATCH_HOOKS, "prepare"),
}
_NO_PHASE = nullcontext()


class PhaseWatch(Phases):
    """Follows which phase is the innermost, by what Lightning tells ``trainer.profiler``, whose place a stand-in takes.

    Lightning names what it does: ``[_TrainingEpochLoop].train_dataloader_next``,
    ``[Strategy]SingleDeviceStrategy.backward``, ``[Callback]ModelCheckpoint.on_train_batch_end`` and so on.
    Actions nest (with automatic optimization, forward and backward run inside the optimizer's closure); the
    innermost known one counts, so that the phases are disjoint and add up. A hook is told apart by whose it is, as
    ``callbacks/<name>``. With manual optimization Lightning reports no backward, but the hooks before and after it;
    an optimizer that a module steps without Lightning's knowledge is seen by torch's own hooks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known = _Actions({}, {})
        self.profiler = StandIn(self, PassThroughProfiler())
        self._by_hand = False
        self._automatic: bool | None = None  # who optimizes: Lightning, or the module
        self._module, self._around = "", set[str]()  # whose hooks around the backward pass are timed, and which

    def install(self, trainer: Any) -> None:
        """Begin to watch; a second call does nothing."""
        if trainer.profiler is self.profiler:
            return
        # Kept after `remove`, which happens within an action that is still to be passed on when it stops.
        inner = trainer.profiler
        kind = StandIn if type(inner).__name__ == "PassThroughProfiler" else _PassesOn
        self.profiler = trainer.profiler = kind(self, inner)
        # Lightning reports also hooks that do nothing: they interrupt no phase.
        idle, module = dict.fromkeys(idle_hooks(trainer)), trainer.lightning_module
        self._module, self._around = OWNED + type(module).__name__, around_backward(module)
        self._known, self._automatic = _Actions(idle, names(trainer.callbacks)), None
        self.look(module)
        self.watch_updates()

    def look(self, module: Any) -> None:
        """See who optimizes; again when hooks may have turned a module to manual optimization."""
        automatic = module.automatic_optimization
        if automatic == self._automatic:
            return
        self._automatic = automatic
        for hook in AROUND_BACKWARD:  # they tell nothing where Lightning reports backward passes
            idle_or_hers = self._module if hook in self._around else None
            self._known[f"[LightningModule]{type(module).__name__}.{hook}"] = idle_or_hers if automatic else hook
        self.profiler.blocks = _Blocks(self, self._known)

    def remove(self, trainer: Any) -> None:
        """Stop watching; a second call does nothing."""
        self.forget()
        self._by_hand = False
        if trainer.profiler is self.profiler:
            found = self.profiler.inner
            while isinstance(found, StandIn) and not found.watch._hooks:  # of a recorder that was removed before
                found = found.inner
            trainer.profiler = found

    def start(self, action_name: str) -> None:
        """Enter an action."""
        phase = self._known[action_name]
        if phase in AROUND_BACKWARD:
            if phase == _AFTER_BACKWARD and self._by_hand:
                self._by_hand = False
                self.leave()
            if phase in self._around:
                self.enter(self._module)
        elif phase is not None:
            self.enter(phase)

    def stop(self, action_name: str) -> None:
        """Leave an action."""
        phase = self._known.get(action_name)
        if phase in AROUND_BACKWARD:
            if phase in self._around:
                self.leave()
            if phase == _BEFORE_BACKWARD and "backward" not in self._stack:
                self._by_hand = True
                self.enter("backward")
        elif phase is not None:
            self.leave()

    def settle(self) -> None:
        """Forget actions that an error left open; only the hook that calls this is running."""
        del self._stack[:-1]
        self._by_hand = False


class StandIn(Profiler):
    """Takes the place of ``trainer.profiler``, which does nothing itself, and tells a watch of each action.

    It is no part of the watch, and only the one below has ``__getattr__``: Python finds the attributes of an object
    with that, or whose ``vars`` were used, in several times as long, and a step needs a hundred of them.
    """

    def __init__(self, watch: PhaseWatch, inner: Any) -> None:
        self.inner = inner  # the trainer's own, of either Lightning; first, as `__getattr__` needs it
        super().__init__()
        self.watch = watch
        self.blocks = _Blocks(watch, watch._known)

    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]
        """A look-up, in a fraction of the time that Lightning's own takes."""
        return self.blocks[action_name]

    def start(self, action_name: str) -> None:
        """Enter an action."""
        self.watch.start(action_name)

    def stop(self, action_name: str) -> None:
        """Leave an action."""
        self.watch.stop(action_name)

    def summary(self) -> str:
        """The trainer's own."""
        return str(self.inner.summary())

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Passed on."""
        self.inner.setup(*args, **kwargs)

    def describe(self) -> None:
        """Passed on."""
        self.inner.describe()

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Passed on."""
        self.inner.teardown(*args, **kwargs)

    def __del__(self) -> None:
        """Do nothing: Lightning's own would tear down the trainer's profiler, which is still in use."""


class _PassesOn(StandIn):
    """The stand-in of a script's own profiler, to which it passes each action on."""

    profile = Profiler.profile  # by `start` and `stop`

    def __getattr__(self, name: str) -> Any:
        """Its attributes, such as ``recorded_durations``."""
        if name == "inner":  # not set yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start(self, action_name: str) -> None:
        """Enter an action."""
        self.inner.start(action_name)
        super().start(action_name)

    def stop(self, action_name: str) -> None:
        """Leave an action."""
        super().stop(action_name)
        self.inner.stop(action_name)


class _Action:
    """A watched action as a context manager; it has no state, so it is used each time."""

    __slots__ = ("name", "watch")

    def __init__(self, watch: PhaseWatch, name: str) -> None:
        self.watch = watch
        self.name = name

    def __enter__(self) -> None:
        self.watch.start(self.name)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.watch.stop(self.name)


class _Phase(_Action):
    """An action that is exactly one phase; ``name`` is the phase's. Written out, as a step has many."""

    __slots__ = ()

    def __enter__(self) -> None:
        watch, phase = self.watch, self.name
        watch._stack.append(phase)
        watch.show(phase)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        stack = self.watch._stack
        if stack:
            stack.pop()
        self.watch.show(stack[-1] if stack else None)


class _Actions(dict[str, str | None]):
    """The phase of each of Lightning's actions, found on first use; None for one that contains others."""

    def __init__(self, known: dict[str, str | None], names: dict[str, str]) -> None:
        super().__init__(known)
        self._names = names  # of callbacks, by their state keys

    def __missing__(self, action: str) -> str | None:
        phase = self[action] = self._phase_of(action)
        return phase

    def _phase_of(self, action: str) -> str | None:
        owner, _, hook = action.rpartition(".")
        kind, _, name = owner.partition("]")
        if kind == "[Callback":
            return OWNED + self._names.get(name, class_of(name))
        if kind == "[Strategy":
            return _OF_STRATEGY.get(hook)
        if kind == "[LightningDataModule":
            return "prepare" if hook in BATCH_HOOKS else None
        if kind == "[LightningModule":
            return OWNED + name if hook in (*MODULE_HOOKS, *BETWEEN_HOOKS) else _OF_MODULE.get(hook)
        if action == "optimizer_step":  # manual optimization
            return "optimizer"
        return "data_wait" if action == "[_TrainingEpochLoop].train_dataloader_next" else None


class _Blocks(dict[str, AbstractContextManager[Any]]):
    """The context manager of each of Lightning's actions (some 20 in a step), made on first use."""

    def __init__(self, watch: PhaseWatch, known: _Actions) -> None:
        self._watch, self._known = watch, known

    def __missing__(self, action: str) -> AbstractContextManager[Any]:
        phase = self._known[action]
        around = phase in AROUND_BACKWARD
        block = _Action(self._watch, action) if around else _Phase(self._watch, phase) if phase else _NO_PHASE
        self[action] = block
        return block


class PhaseClock(Clock, PhaseWatch):
    """Attributes each moment of a step of Lightning's to one phase."""

    def __init__(self, device: DeviceClock | None = None) -> None:
        super().__init__(device)
        self._charged: list[_Charged] = []

    def install(self, trainer: Any) -> None:
        """Begin to watch; a second call does nothing."""
        super().install(trainer)
        self.collect(True)

    def watch_calls(self, objects: Iterable[Any], *methods: str) -> None:
        """Charge such calls, which Lightning does not report, to the object's class, until `remove`."""
        for owner in objects:
            for method in methods:
                self._charged.append(charged := _Charged(self, owner, method))
                setattr(owner, method, charged)

    def remove(self, trainer: Any) -> None:
        """Stop watching; a second call does nothing."""
        super().remove(trainer)
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
        while isinstance(found := own.get(self._name), _Charged) and found._ended:
            del own[self._name]
            if found._own is not None:
                setattr(self._owner, self._name, found._own)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_was, (self._owner, self._name, self._own)


def _as_it_was(owner: Any, name: str, own: Any) -> Any:
    return own or MethodType(getattr(type(owner), name), owner)
