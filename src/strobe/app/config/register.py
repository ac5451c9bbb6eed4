"""The typed schema of the configuration. Imports no torch.

Hydra rejects unknown keys and wrong types by these classes and those of ``schema``; ``checks`` holds the values
against the bounds given there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import CompactHydraException
from omegaconf import MISSING, OmegaConf

from strobe.app.config.names import run_name, start_time
from strobe.app.config.schema import data, engine, knob, loader, model, profiler, suite
from strobe.app.config.schema.data import DataConfig
from strobe.app.config.schema.engine import EngineConfig
from strobe.app.config.schema.loader import LoaderConfig
from strobe.app.config.schema.model import ModelConfig
from strobe.app.config.schema.profiler import ProfilerConfig
from strobe.app.config.schema.suite import SuiteConfig
from strobe.app.config.schema.sweep import SweepConfig
from strobe.app.config.schema.tune import TuneConfig
from strobe.errors import StrobeError

GROUPS = (data, engine, loader, model, profiler, suite)


@dataclass
class CheckpointConfig:
    """Which checkpoints are kept, beside the last one."""

    monitor: str = knob("val/accuracy", choices=["val/accuracy", "val/loss"])  # the best one by this
    every_n_epochs: int = knob(1, min=1)  # how often best.ckpt and last.ckpt are looked after; and when training ends
    every_n_steps: int | None = knob(None, min=1)  # renew last.ckpt also within an epoch


@dataclass
class Config:
    """Everything a run depends on."""

    data: DataConfig = MISSING
    loader: LoaderConfig = MISSING
    engine: EngineConfig = MISSING
    model: ModelConfig = MISSING
    trainer: dict[str, Any] = MISSING  # Lightning's own arguments
    profiler: ProfilerConfig = MISSING
    logger: dict[str, Any] = MISSING  # Lightning's own arguments
    callbacks: dict[str, Any] = field(default_factory=dict)  # more Lightning callbacks, each with its _target_
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    ckpt_path: str | None = None  # a file, or last: resume from it
    seed: int = knob(42, min=0, max=2**32 - 1)  # of weights, order and augmentation
    test: bool = True  # test after training
    threads: int | None = knob(None, min=1)  # on which one operator of training computes; null: as torch does
    ceilings: bool = True  # after training, measure loading and computing alone, and what would be faster
    ceilings_seconds: float = knob(5.0, above=0, max=3600)  # at most for each of these measurements
    sweep: SweepConfig = field(default_factory=SweepConfig)  # of train.py -m; its runs do not get these keys


@dataclass
class BenchConfig(Config):
    """What ``python -m strobe.bench`` measures, and how much; null: as the suite's mode has it."""

    suite: SuiteConfig = MISSING
    quick: bool = False  # under a minute on two cores, to see that it works
    rounds: int | None = knob(None, min=1, max=1000)  # trials of each cell, at most
    turn_seconds: float | None = knob(None, above=0, max=3600)  # timed in a trial; one repetition at least
    budget_seconds: float | None = knob(None, min=0)  # after which nothing but a cell's first trial begins
    precision: float = knob(0.02, min=0, below=1)  # a cell is done when its 95% interval is so near, as a share
    timeout_seconds: float = knob(900.0, above=0, max=86400)  # of one trial
    baseline: str | None = None  # an earlier results.json, or its folder, to compare with
    fail_if_slower: str | None = None  # such as 5%: exit with code 3 if a cell is that much slower than in baseline


@dataclass
class TuningConfig(Config):
    """What ``python -m strobe.tune`` starts from, and searches."""

    tune: TuneConfig = field(default_factory=TuneConfig)


def workers_beside(engine: Any) -> int:
    """How many processes or threads load beside training, of the configuration's ``engine``: none of a resident one."""
    return int(engine.num_workers) if "prefetch_factor" in engine else 0


def schemas() -> Iterator[type]:
    """The schemas of all choices in ``conf/``."""
    for group in GROUPS:
        yield from (kind for kind in vars(group).values() if is_dataclass(kind) and isinstance(kind, type))


class _Shared(dict[str, Any]):
    """The store's content, shared where Hydra would copy it all, once for each group that it lists.

    That takes most of the time of ``--help``; ``ConfigStore.load`` copies the node that it gives out anyhow.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        return self


def register() -> None:
    """Make the schemas, by their class names, and the resolvers known to Hydra, which composes conf/ on them."""
    store = ConfigStore.instance()
    store.repo = _Shared(store.repo)
    for schema in (Config, BenchConfig, TuningConfig, *schemas()):
        store.store(name=schema.__name__, node=schema)
    OmegaConf.register_new_resolver("start_time", start_time, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)


@contextmanager
def told_by_hydra() -> Iterator[None]:
    """Within ``hydra.main``: let Hydra print a user's mistake as one sentence, with HYDRA_FULL_ERROR=1 all of it.

    Raises:
        CompactHydraException: the only kind of error that Hydra prints without a traceback.
    """
    try:
        yield
    except StrobeError as error:
        raise CompactHydraException(str(error)) from error
