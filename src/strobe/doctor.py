"""The command ``strobe doctor``. Imports no torch: what is broken can be asked, too."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from strobe.app.native import system
from strobe.measure.environment import free_memory, has_gpu, installed, kernel_memory, usable_cores
from strobe.present.format import size
from strobe.process.launch import parser_of, start
from strobe.records.places import ATTACHED, OUTPUTS

HELP = """Says what is installed here and what is missing; what that costs, and the command that mends it.

It initialises no GPU and writes nothing. Exit code 1: torch or Lightning is missing.
"""
LIGHTNINGS = ("lightning", "pytorch-lightning")  # either will do
CONTAINED = ("/.dockerenv", "/run/.containerenv")  # of which one is in a container of Docker's or Podman's
LEAST_SHM = 1 << 30  # bytes: Docker gives 64 MB, which a few batches of photos fill
LEAST_ROOM = 1 << 30  # bytes: a run with checkpoints of resnet18 leaves 0.2 GB, with traces more


@dataclass(frozen=True)
class Part:
    """Something that Strobe needs or uses."""

    name: str
    found: str
    lost: str = ""  # if something is missing
    mend: str = ""  # the command for that
    needed: bool = False  # nothing can be trained without it


def parts() -> Iterator[Part]:
    """What is here, in the order in which it is shown."""
    yield Part("Python", f"{platform.python_version()}, {sys.executable}")
    found = installed("torch", *LIGHTNINGS)
    torch = found.pop("torch", None)
    yield Part("torch", torch or "missing", "" if torch else "nothing can be trained", "pip install torch", needed=True)
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    lost = "" if told else "only loops without a Trainer can be measured, with strobe.watch"
    yield Part("Lightning", told or "missing", lost, "pip install lightning", needed=True)
    lacking = system.lacks()
    lost = "no loader=native, tiles are read by tifffile; no torch.compile on a CPU" if lacking else ""
    mend = "unset CXX" if system.named_compiler() else system.install(system.PHOTOS[:1])
    yield Part("C++ compiler", system.compiler() or f"missing: {lacking}", lost, mend)
    lacking = system.lacks(system.JPEG)
    lost = "photos are decoded by Pillow" if lacking else ""
    yield Part("libjpeg", f"missing: {lacking}" if lacking else system.JPEG, lost, system.install(system.PHOTOS))
    ffmpeg = system.has_ffmpeg()
    lost = "" if ffmpeg else f"no {system.FFMPEG_SERVES}"
    yield Part("FFmpeg", "its libraries" if ffmpeg else "missing", lost, system.install([system.FFMPEG]))
    yield _gpu(torch is not None)
    yield from _machine()


def _gpu(torch: bool) -> Part:
    if not has_gpu():
        return Part("GPU", "none; training is on the CPU")
    if not torch or _for_gpus():
        return Part("GPU", "its driver is loaded")
    lost = "it stays idle: this torch was built for CPUs"
    return Part("GPU", "its driver is loaded", lost, "pip install --force-reinstall torch")


def _for_gpus() -> bool:
    """Whether the installed torch can use a GPU of any maker."""
    spec = find_spec("torch")
    libraries = Path(spec.origin).with_name("lib") if spec and spec.origin else Path()
    return any(any(libraries.glob(f"*torch_{kind}.*")) for kind in ("cuda", "hip", "xpu"))


def _machine() -> Iterator[Part]:
    cores, allowed, there = usable_cores(), len(os.sched_getaffinity(0)), os.cpu_count() or 1
    cause = ", by a container's quota" if cores < allowed else ", by this process's affinity" if cores < there else ""
    lost = f"a quota leaves {cores} of the {allowed} cores to loading and training" if 2 * cores < allowed else ""
    lost = "loading and training share one core" if cores == 1 < there else lost
    mend = f"docker run --cpus={allowed} ..." if cores < allowed else f"taskset --cpu-list 0-{there - 1} COMMAND"
    yield Part("Cores", f"{cores} of {there}{cause}", lost, mend)
    memory, free = kernel_memory(), free_memory()
    total, cached = memory.get("MemTotal"), memory.get("Cached")
    told = f"{_size(free)} free of {_size(total)}; {_size(cached)} is page cache: read again without the disk"
    yield Part("Memory", told)
    shm = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    told = f"{size(shm.free)} free of {size(shm.total)}" if shm else "missing"
    lost = "" if shm and shm.free >= LEAST_SHM else "loader workers hand batches over in it; when it is full, they die"
    contained = any(map(os.path.exists, CONTAINED))
    mend = "docker run --shm-size=8g ..." if contained else "sudo mount -o remount,size=50% /dev/shm"
    yield Part("/dev/shm", told, lost, mend)
    folder = next((place for place in (OUTPUTS, ATTACHED) if place.is_dir()), Path()).absolute()
    room, writable = shutil.disk_usage(folder).free, os.access(folder, os.W_OK)
    lost = "" if room >= LEAST_ROOM else "a run may not find room for its record, traces and checkpoints"
    mend = "strobe clean --older-than 7d --remove"
    if not writable:
        lost, mend = "runs leave no record here", f"sudo chown {os.geteuid()} {folder}"
    yield Part("Room for runs", f"{size(room)} free in {folder}", lost, mend)


def _size(count: int | None) -> str:
    return "?" if count is None else size(count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; exits with 1 if something needed is missing."""
    parser_of("doctor", HELP).parse_args(arguments)
    failed = []
    for part in parts():
        print(f"{'-' if part.lost else '+'} {part.name:<14}{part.found}")
        if part.lost:
            print(f"{'':<16}{part.lost}\n{'':<16}-> {part.mend}")
            failed += [part.name] if part.needed else []
    if failed:
        sys.exit(f"Needed, and missing: {' and '.join(failed)}")


if __name__ == "__main__":
    start(main)
