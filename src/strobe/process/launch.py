"""What the launcher (a plain start, torchrun, Lightning's own) says about this process. Imports no torch."""

import os
from pathlib import Path


def rank() -> int:
    """The global rank of this process, before torch.distributed starts: by torchrun, srun or Lightning's launcher."""
    return int(next((os.environ[name] for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK") if os.environ.get(name)), 0))


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def quieten_kineto() -> None:
    """Keep torch.profiler's library from reporting a missing GPU with each trace; call it before importing torch."""
    if not Path("/dev/nvidiactl").exists():
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its allocator's, when memory is profiled
