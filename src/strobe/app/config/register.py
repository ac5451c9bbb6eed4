"""Makes the schema and the resolvers known to Hydra, and Hydra tell a user's mistake. Imports no torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf

from strobe.app.config import schema
from strobe.app.config.names import run_name, start_time
from strobe.errors import StrobeError


def workers_beside(engine: Any) -> int:
    """How many processes or threads load beside training, of the configuration's ``engine``: none of a resident one."""
    return int(engine.num_workers) if "prefetch_factor" in engine else 0


def schemas() -> Iterator[type]:
    """All schemas; ``conf/`` names them by their class names."""
    yield from (kind for kind in vars(schema).values() if isinstance(kind, type) and is_dataclass(kind))


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
    for kind in schemas():
        store.store(name=kind.__name__, node=kind)
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
