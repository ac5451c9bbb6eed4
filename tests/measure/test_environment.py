"""What a measurement depends on, of this machine."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from strobe.callbacks import accelerators
from strobe.measure import environment
from strobe.measure.environment import PACKAGES, describe, peak_memory, usable_cores
from support.files import plant
from support.places import ROOT
from support.processes import git

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        *(({"cpu.max": text}, 1) for text in ("100000 100000", "5000 100000")),
        ({"cpu.max": "150000 100000"}, 2),
        *(({"cpu.max": f"{quota} 100000"}, CORES) for quota in ((CORES + 4) * 100_000, "max", "nonsense of")),
        ({}, CORES),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),  # of an older cgroup
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, CORES),
    ],
)
def test_cores_by_quota_and_affinity(tmp_path: Path, files: dict[str, str], quota: int) -> None:
    plant(tmp_path, {name: f"{text}\n".encode() for name, text in files.items()})
    assert usable_cores(tmp_path, tmp_path / "none") == min(CORES, quota)


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/user.slice/job.scope", {"user.slice/cpu.max": "100000 100000"}, 1),  # of the group around it
        ("0::/user.slice/job.scope", {"other.slice/cpu.max": "100000 100000"}, CORES),
        ("0::/a/b", {"cpu.max": "max 100000", "a/cpu.max": "150000 100000", "a/b/cpu.max": "50000 100000"}, 1),
        (
            "4:memory:/x\n1:cpu,cpuacct:/docker/abc\n0::/",
            {"cpu/docker/abc/cpu.cfs_quota_us": "100000", "cpu/docker/abc/cpu.cfs_period_us": "100000"},
            1,
        ),
        ("0::/docker/abc", {"cpu.max": "100000 100000"}, 1),  # the container sees its own group as the root
        ("0::/../../else", {"cpu.max": "100000 100000"}, 1),
    ],
)
def test_the_smallest_quota_of_the_groups_around_a_process_holds(
    tmp_path: Path, own: str, files: dict[str, str], quota: int
) -> None:
    plant(tmp_path, {f"fs/{name}": f"{text}\n".encode() for name, text in files.items()} | {"own": own.encode()})
    assert usable_cores(tmp_path / "fs", tmp_path / "own") == min(CORES, quota)


def test_affinity_limits_the_cores(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_record_has_what_the_design_says_and_no_path() -> None:
    found = describe()
    keys = "host cpu cpu_bfloat16 usable_cores physical_cores memory_bytes memory_free_bytes shm_free_bytes"
    assert set(found) == {
        *keys.split(),
        "gpu",
        "gpu_capability",
        "versions",
        "git_commit",
        "default_malloc",
        "huge_pages",
        "page_cache",
    }
    assert {"python", "torch", "numpy"} <= set(found["versions"]) <= {"python", *PACKAGES}
    assert found["memory_bytes"] > 1e8
    assert 1 <= found["usable_cores"] <= CORES
    assert found["cpu"]
    if (ROOT / ".git").exists():
        assert re.fullmatch(r"[0-9a-f]{40}\+?", found["git_commit"])
    text = json.dumps(found)
    assert json.loads(text) == found
    assert str(ROOT) not in text
    assert sys.prefix not in text


def test_uncommitted_are_changes_of_files_that_git_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "__file__", str(code := tmp_path / "code.py"))
    git(tmp_path, "init", "-q")
    code.write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "notes.txt").write_text("mine")
    assert describe()["git_commit"] == git(tmp_path, "rev-parse", "HEAD")
    code.write_text("2\n")
    assert describe()["git_commit"] == git(tmp_path, "rev-parse", "HEAD") + "+"


def test_peak_memory_is_in_bytes() -> None:
    held_now = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert 0.9 * held_now <= peak_memory()["rss_peak_bytes"] <= describe()["memory_bytes"]


def test_a_gpu_of_another_kind_than_cuda_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("xpu"))
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda _: "Intel's")
    assert describe()["gpu"] is None
    found = describe(start_gpu=True)
    assert (found["gpu"], found["gpu_capability"]) == ("Intel's", None)


@pytest.mark.parametrize(
    ("device", "gpu"), [(None, "number 0"), (torch.device("cuda", 1), "number 1"), (torch.device("cpu"), None)]
)
def test_the_gpu_that_is_trained_on_is_told_and_none_beside_a_training_on_the_cpu(
    device: torch.device | None, gpu: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where CUDA has begun all the same: Lightning asks it for its random states."""
    monkeypatch.setattr(accelerators, "in_use", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"number {device.index}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, device.index))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 100 + device.index)
    number = gpu and int(gpu[-1])
    found = describe(device=device)
    assert (found["gpu"], found["gpu_capability"]) == (gpu, None if number is None else [8, number])
    assert peak_memory(device)["device_peak_bytes"] == (None if number is None else 100 + number)


KEEPING = """
import resource, torch
from strobe.measure.environment import keep_memory, paging

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(12_000_000)  # more than malloc keeps
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
usual = faults(), paging()["default_malloc"]
keep_memory()
for _ in range(30):  # until small objects lie beside what is freed, not in it
    faults()
print(*usual, faults(), paging()["default_malloc"])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="intended: another malloc decides for itself")
def test_malloc_keeps_freed_memory_once_it_is_told() -> None:
    variables = {name: value for name, value in os.environ.items() if name not in environment.MALLOC}
    command = [sys.executable, "-W", "ignore", "-c", KEEPING]
    usual, default, kept, told = subprocess.run(
        command, env=variables, check=True, capture_output=True, text=True
    ).stdout.split()
    assert (default, told) == ("True", "False")
    assert int(kept) < int(usual) / 4


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "-1", False),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=0", False),
        ("GLIBC_TUNABLES", "glibc.pthread.rseq=0", True),
        ("LD_PRELOAD", "/usr/lib/libtcmalloc.so.4", False),
        ("LD_PRELOAD", "/usr/lib/libgomp.so.1", True),
    ],
)
def test_who_gives_memory_is_told(monkeypatch: pytest.MonkeyPatch, name: str, value: str, default: bool) -> None:
    for other in (*environment.MALLOC, "GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert environment.paging()["default_malloc"] == (default and platform.libc_ver()[0] == "glibc")


def test_huge_pages_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    monkeypatch.setattr(environment, "HUGE_PAGES", tmp_path / "enabled")
    for text, huge in (("always [madvise] never", False), ("[always] madvise never", True)):
        environment.HUGE_PAGES.write_text(text)
        assert environment.paging()["huge_pages"] == huge
    environment.HUGE_PAGES.unlink()
    assert not environment.paging()["huge_pages"]
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "1")
    assert environment.paging()["huge_pages"]
