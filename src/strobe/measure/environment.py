"""What a measurement depends on besides the code that is measured: machine, libraries, commit.

torch is imported only by what asks for a GPU.
"""

import contextlib
import ctypes
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from math import ceil, inf
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PACKAGES = ["torch", "torchvision", "lightning", "pytorch-lightning", "hydra-core", "numpy"]  # those that are installed
PACKAGES += ["rasterio", "scikit-image", "tifffile"]
CGROUP, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
OLDER_QUOTA = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# What glibc's malloc keeps of freed memory: variables, with which it keeps all, and what mallopt(3) calls each.
MALLOC = {"MALLOC_MMAP_MAX_": (0, -4), "MALLOC_TRIM_THRESHOLD_": (-1, -1)}
GPUS = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvgpu*", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
BFLOAT16 = {"amx_bf16", "avx512_bf16", "bf16"}  # instructions that multiply, x86's and Arm's


def describe(*, device: "torch.device | None" = None, start_gpu: bool = False) -> dict[str, Any]:
    """The ``environment`` of ``summary.json``, of a training on this device; memory in bytes.

    A GPU is named only if this process uses it, or with ``start_gpu``: asking takes memory there, and seconds. One on
    which an assertion has failed answers no question any more.
    """
    import torch

    from strobe.callbacks.accelerators import PINNING, module_of

    name = capability = None
    with contextlib.suppress(RuntimeError):
        if gpu := _gpu(device) or (torch.accelerator.current_accelerator(check_available=True) if start_gpu else None):
            name = module_of(gpu).get_device_name(gpu) if gpu.type in PINNING else gpu.type  # MPS tells no name
            capability = list(torch.cuda.get_device_capability(gpu)) if gpu.type == "cuda" else None
    shm = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "host": socket.gethostname(),
        "cpu": _processor("model name") or platform.machine(),
        "cpu_bfloat16": not BFLOAT16.isdisjoint(_processor("flags|Features").split()),
        "usable_cores": usable_cores(),
        "physical_cores": physical_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_free_bytes": free_memory(),
        "shm_free_bytes": shm and shm.free,  # loader workers hand batches over in it
        "gpu": name,
        "gpu_capability": capability,
        "versions": {"python": platform.python_version()} | installed(*PACKAGES),
        "git_commit": _commit(),
        **paging(),
        "page_cache": None,
    }


def paging() -> dict[str, Any]:
    """How memory is given to this process: whether by ``default_malloc``, glibc's as it is unless told otherwise; and
    whether in ``huge_pages``, each of which is one page fault.
    """
    told = {*MALLOC, "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"} & os.environ.keys()
    told |= {name for name in ("GLIBC_TUNABLES", "LD_PRELOAD") if "malloc" in os.environ.get(name, "")}
    huge = os.environ.get("THP_MEM_ALLOC_ENABLE") == "1"  # torch's
    with contextlib.suppress(OSError):
        huge = huge or "[always]" in HUGE_PAGES.read_text()
    return {"default_malloc": platform.libc_ver()[0] == "glibc" and not told, "huge_pages": huge}


def keep_memory() -> None:
    """Have glibc's malloc keep what is freed from here on; another one stays as it is."""
    if platform.libc_ver()[0] == "glibc":
        for name, (value, parameter) in MALLOC.items():
            ctypes.CDLL(None).mallopt(parameter, value)
            os.environ[name] = str(value)


def has_gpu() -> bool:
    """Whether torch may find a GPU here; True if only torch can tell."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    root = Path("/")
    return sys.platform != "linux" or any(any(root.glob(pattern[1:])) for pattern in GPUS)


def usable_cores(cgroup: Path = CGROUP, own: Path = OWN_CGROUP) -> int:
    """The cores that this process may use, by its affinity and the smallest quota of its cgroups (v2 or v1)."""
    cores = len(os.sched_getaffinity(0))
    return max(1, ceil(min(cores, *quotas(cgroup, own).values())))


def physical_cores() -> int | None:
    """The usable cores, with hardware threads of one core counted once; None where the system does not tell."""
    folder = Path("/sys/devices/system/cpu")
    with contextlib.suppress(OSError):
        cores = {(folder / f"cpu{one}/topology/thread_siblings_list").read_text() for one in os.sched_getaffinity(0)}
        return min(usable_cores(), len(cores))
    return None


def quotas(cgroup: Path = CGROUP, own: Path = OWN_CGROUP) -> dict[Path, float]:
    """Folders of this process's cgroups, v2's and v1's, each with its quota in cores, or infinity: the smallest first.

    A quota also holds for the groups within, so these are its own group, those around it, and the root.
    """
    places = {cgroup: "/", cgroup / "cpu": "/"}
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "cpu" in controllers.split(",") or not controllers:
                places[cgroup / "cpu" if controllers else cgroup] = path
    shares = {}
    for root, path in places.items():
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents) if ".." not in inner.parts else [Path()]:  # else it lies outside
            shares[root / folder] = min(_quota(root / folder, "cpu.max"), _quota(root / folder, *OLDER_QUOTA))
    return dict(sorted(shares.items(), key=itemgetter(1)))


def _quota(folder: Path, *names: str) -> float:
    with contextlib.suppress(OSError, ValueError):
        quota, period = " ".join((folder / name).read_text() for name in names).split()
        return int(quota) / int(period) if int(quota) > 0 else inf
    return inf


def free_memory(*, meminfo: Path = Path("/proc/meminfo"), cgroup: Path = CGROUP) -> int | None:
    """Bytes that this container (cgroup v2) can still allocate; None if unknown."""
    limits = [size for name, size in kernel_memory(meminfo).items() if name == "MemAvailable"]
    with contextlib.suppress(OSError, ValueError):
        limit, used = ((cgroup / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        cached = int(statistics.get("inactive_file", 0))  # freed when needed
        limits += [] if limit == "max" else [max(0, int(limit) - int(used) + cached)]
    return min(limits, default=None)


def kernel_memory(meminfo: Path = Path("/proc/meminfo")) -> dict[str, int]:
    """What the kernel says of memory, in bytes: ``MemTotal``, ``Cached`` and so on; empty if it says nothing."""
    with contextlib.suppress(OSError):
        lines = (line.split() for line in meminfo.read_text().splitlines())
        return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[2:] == ["kB"]}
    return {}


def peak_memory(device: "torch.device | None" = None) -> dict[str, int | None]:
    """The most memory held so far, in bytes: by this process, and on its GPU, of a training on this device."""
    from strobe.callbacks.accelerators import module_of

    held = None
    with contextlib.suppress(RuntimeError):  # of a GPU that answers no question any more
        gpu = _gpu(device)
        held = module_of(gpu).max_memory_allocated(gpu) if gpu else None
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"rss_peak_bytes": own, "device_peak_bytes": held}


def _gpu(device: "torch.device | None") -> "torch.device | None":
    """The accelerator that is trained on; the one in use if nothing is known of a training.

    Not one that is only available: after asking, a process that is forked cannot use it. Nor one beside a training on
    the CPU, where Lightning begins CUDA to keep random states.
    """
    from strobe.callbacks.accelerators import in_use

    used = in_use()
    if device is None or used is None:
        return used
    return None if device.type == "cpu" else device


def _processor(field: str) -> str:
    """A field of Linux's description of the first processor; empty if there is none."""
    with contextlib.suppress(OSError):
        if match := re.search(rf"^(?:{field})\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return match[1]
    return ""


def installed(*names: str) -> dict[str, str]:
    """The versions of those of these packages that are installed."""
    versions = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _commit() -> str | None:
    """The commit of Strobe's checkout, with ``+`` for uncommitted changes of its files; None outside one.

    A checkout of another project that Strobe is installed in does not count.
    """
    git = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent)]  # it writes nothing there
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        tracked = [*git, "status", "--porcelain", "--untracked-files=no"]
        changes = subprocess.run(tracked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+" if changes.stdout else "")
