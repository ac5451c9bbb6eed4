"""Where Hydra looks for launchers: ``hydra/launcher=processes`` is how ``train.py`` runs a sweep.

Hydra takes plugins from this namespace package alone (https://hydra.cc/docs/1.3/advanced/plugins/develop/), and imports
this module in each application that it starts; what it does is in ``strobe.app.sweep``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from strobe.app.sweep.launcher import Processes


class ProcessLauncher(Launcher):
    """Runs each cell of a sweep in a process of its own, one at a time, and goes on when one fails."""

    processes: "Processes | None" = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take the sweep's configuration."""
        from strobe.app.sweep.launcher import Processes  # and rich: help need not wait for it

        self.processes = Processes(hydra_context.config_loader, config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Measure these cells; a sweeper may come again with more."""
        assert self.processes is not None
        return self.processes.measure(job_overrides)


# It takes no values of its own; ``sweep.repeats`` and its like are the application's.
TARGET = {"_target_": f"{__name__}.{ProcessLauncher.__name__}"}
ConfigStore.instance().store(group="hydra/launcher", name="processes", node=TARGET, provider="strobe")
