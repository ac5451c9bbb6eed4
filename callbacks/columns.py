"""The columns of ``steps.csv``, and where the rows of each rank lie. Imports no torch."""

from pathlib import Path

# They add up to the step. Earlier records have in `transfer` what the hooks around it do, which is `prepare`.
PHASES = ("data_wait", "transfer", "prepare", "forward", "backward", "optimizer", "callbacks", "other")
BETWEEN = "between"  # epochs
GAPS = ("validation", "checkpoints", BETWEEN)  # seconds between a step and the next one
DEVICE = ("total", "transfer", "prepare", "forward", "backward", "optimizer", "idle")  # of a GPU, after ``device_``
GAP = "gap"  # seconds of a GPU between a step and the next one, when it has done what the step gave it
CPU = tuple(f"cpu_{phase}" for phase in PHASES)  # core-seconds of the training process, of some steps only
MAIN = tuple(f"main_{phase}" for phase in PHASES)  # of these, the thread that trains
KERNEL, FAULTS = "kernel", "page_faults"  # of these steps, in MAPPING: core-seconds in the kernel; pages it mapped
MAPPING = tuple(phase for phase in PHASES if phase not in ("data_wait", "callbacks"))  # those that compute
COLLECTING = "garbage_collection"  # seconds of a step, within its phases other than callbacks
RECOMPUTING = "torch.utils.checkpoint"  # computes activations again in a backward pass
CALLING_BACKWARD = "torch.autograd"  # a line that only begins a backward pass
FOLLOWED = ("first", "last")  # steps whose operations are: the second and the third one
OF_FIRST = ("unused", "unused_backward", "attention")  # kinds of waste that the first one shows; the last one all else
COLLATING = "torch.utils.data.default_collate"  # makes a batch of samples, for which training waits
SAMPLING = "torch.utils.data.Sampler"  # draws the indices of batches, for which training waits
PARAMETRIZING = "torch.nn.utils.parametrize"  # computes a weight from others whenever it is used
JACOBIANS = "torch.func.jacrev or jacfwd"  # and torch.autograd.functional.jacobian
SAVING = "torch.save or torch.load"
ENDING_WORKERS = "torch.utils.data.DataLoader"  # waits for its workers to end, between epochs
GPU_CHECK = "torch.accelerator"  # before each update Adam asks whether a CUDA graph is captured, and for that for a GPU
LOGGING = "self.log"  # a LightningModule's own, where it is what a line calls
LOADING = "loading"  # what the workers of a DataLoader do, while they are asked for a batch
THREAD = "thread/"  # before the name of another thread whose lines were looked at
AFTER = "after/"  # before the name of a callback or module whose hooks took seconds between a step and the next one
MEMORY = ("memory", "workers_memory")  # bytes, of some steps only: of this process, and of its largest loader worker
OWNED = "callbacks/"  # before the name of a callback, logger or module whose hooks took the seconds
HEAD = ("step", "epoch", "images", "updates", "optimizers", "profiled", "compiled", "workers_started", *MEMORY)
COLUMNS = (*HEAD, "total", *PHASES, *GAPS, *CPU, *MAIN, KERNEL, FAULTS, COLLECTING)
EXPOSED = "exposed_wait"  # seconds of a step in which this rank waits for the others; on a GPU also its device's
WAITS = tuple(f"wait_{phase}" for phase in PHASES)  # of these, in each phase
RANKS = (EXPOSED, *WAITS, "elements", "started")  # only where there are several ranks
RANKS_FOLDER = "ranks"  # of all ranks but the first, beside its rows
LOOKS_FOLDER = "strobe-workers-"  # begins the name of the folder in which loader workers say where they were


def rows_of(path: Path, rank: int) -> Path:
    """Where a rank writes its rows, where rank 0 writes to this path."""
    return path if rank == 0 else path.parent / RANKS_FOLDER / f"{rank}.csv"


def lines_of(path: Path) -> Path:
    """Where a rank other than 0 leaves ``Looks.records``, beside its rows."""
    return path.with_name(f"{path.stem}-lines.json")
