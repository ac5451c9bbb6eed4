"""Who has hooks in a training: callbacks, the module, gradient clipping and schedulers, by name."""

import re
import sys
from collections.abc import Iterable
from typing import Any

STEP_HOOKS = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_save_checkpoint",
)
AROUND_BACKWARD = ("on_before_backward", "on_after_backward")
MODULE_HOOKS = ("on_train_batch_start", "on_train_batch_end", "on_before_zero_grad", "on_before_optimizer_step")
SKIPPED = (*MODULE_HOOKS, *AROUND_BACKWARD)  # where they do nothing: those that `skip_idle` takes away
BATCH_HOOKS = ("on_before_batch_transfer", "on_after_batch_transfer")
BETWEEN_HOOKS = ("on_train_epoch_start", "on_train_epoch_end")
CLIPPING, SCHEDULER = "Gradient clipping", "Learning-rate scheduler"
_HOOK = re.compile(r"on_|(setup|teardown|state_dict|load_state_dict)$")
_IDLE = re.compile(r"(lightning\.pytorch|pytorch_lightning)\.(callbacks\.callback|core\.(hooks|module))$")  # do nothing


def owners(trainer: Any) -> list[str]:
    """Names of everything with hooks in a step: callbacks, module, clipping, schedulers, metrics."""
    more = [CLIPPING] * _clips(trainer) + [SCHEDULER] * bool(trainer.lr_scheduler_configs)
    return _owners(trainer, STEP_HOOKS, SKIPPED, more)


def owners_between(trainer: Any) -> list[str]:
    """Names of everything with hooks at the starts and ends of epochs, and of metrics, which are computed there."""
    return _owners(trainer, BETWEEN_HOOKS, BETWEEN_HOOKS)


def _owners(trainer: Any, hooks: Iterable[str], of_module: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    known, module = names(trainer.callbacks), trainer.lightning_module
    classes = [known[one.state_key] for one in trainer.callbacks if _overrides(one, hooks)]
    classes += [type(module).__name__] * _overrides(module, of_module)
    return list(dict.fromkeys([*classes, *more, *(type(metric).__name__ for metric in metrics_of(module))]))


def metrics_of(module: Any) -> list[Any]:
    """The torchmetrics of a module; none for a compiled one, whose calls are the compiler's."""
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is None or getattr(module, "_compiler_ctx", None) is not None:
        return []
    return [each for each in module.modules() if isinstance(each, torchmetrics.Metric)]


def kinds(trainer: Any) -> dict[str, str]:
    """``metric``, ``logger``, ``module`` or ``checkpoint``, by name; any other name is a callback's."""
    module = trainer.lightning_module
    kinds = {type(metric).__name__: "metric" for metric in metrics_of(module)}
    kinds |= {type(logger).__name__: "logger" for logger in trainer.loggers} | {type(module).__name__: "module"}
    return kinds | dict.fromkeys(checkpoint_names(trainer), "checkpoint")


def checkpoint_names(trainer: Any) -> set[str]:
    """The names of the callbacks that write checkpoints."""
    return {names(trainer.callbacks)[callback.state_key] for callback in trainer.checkpoint_callbacks}


def names(callbacks: Iterable[Any]) -> dict[str, str]:
    """A name for each callback's state key: its class, numbered if there are several."""
    names: dict[str, str] = {}
    for key in dict.fromkeys(callback.state_key for callback in callbacks):
        name, number = class_of(key), 2
        while name in names.values():
            name, number = f"{class_of(key)} {number}", number + 1
        names[key] = name
    return names


def class_of(state_key: str) -> str:
    """The class of a callback, which its state key starts with; without the function that it is defined in."""
    return state_key.partition("{")[0].rpartition("<locals>.")[2]


def _overrides(owner: Any, hooks: Iterable[str]) -> bool:
    """Whether it overrides hooks of Lightning's base class, of either package."""
    methods = (getattr(owner, hook, None) for hook in hooks)
    return any(not _IDLE.match(str(getattr(hook, "__module__", None))) for hook in methods if hook is not None)


def _clips(trainer: Any) -> bool:
    """Whether gradients are clipped, by Lightning or by the module."""
    module = trainer.lightning_module
    return bool(trainer.gradient_clip_val) or _overrides(module, ["configure_gradient_clipping"])


def skip_idle(callback: Any, trainer: Any) -> None:
    """Let Lightning pass over the hooks of a step in which a callback does nothing: it calls what is callable.

    One that the trainer does not have keeps them for whoever calls it.
    """
    if any(one is callback for one in trainer.callbacks):
        hooks = [hook for hook in SKIPPED if not _overrides(callback, [hook])]
        vars(callback).update(dict.fromkeys(hooks))


def restore_idle(callback: Any) -> None:
    """Give a callback the hooks back that it lacks by `skip_idle`; safe when it lacks none."""
    own = vars(callback)
    for hook in SKIPPED:
        if own.get(hook, callback) is None:
            del own[hook]


def state_before_fit(callback: Any, **parts: Any) -> dict[str, Any]:
    """What a copy of a callback has, or a pickle: its settings, these ``parts`` in the place of those of a `fit`."""
    own = {name: value for name, value in vars(callback).items() if name not in SKIPPED}  # put there during `fit`
    return own | parts


def around_backward(module: Any) -> set[str]:
    """Which hooks around the backward pass a module overrides."""
    return {hook for hook in AROUND_BACKWARD if _overrides(module, [hook])}


def idle_hooks(trainer: Any) -> set[str]:
    """Actions of hooks that neither a callback of that name nor the module overrides."""
    callbacks, module = trainer.callbacks, trainer.lightning_module
    idle, busy = set[str](), set[str]()
    for callback in callbacks:
        for hook in filter(_HOOK.match, dir(callback)):
            into = busy if _overrides(callback, [hook]) else idle
            into.add(f"[Callback]{callback.state_key}.{hook}")
    hooks = [hook for hook in (*MODULE_HOOKS, *BATCH_HOOKS) if not _overrides(module, [hook])]
    hooks += ["configure_gradient_clipping"] * (not _clips(trainer))
    return idle - busy | {f"[LightningModule]{type(module).__name__}.{hook}" for hook in hooks}
