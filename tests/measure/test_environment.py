"""What a measurement depends on, of this machine."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from strobe.measure.environment import PACKAGES, describe, peak_memory, usable_cores
from support.places import ROOT

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("cpu_max", "quota"),
    [
        ("150000 100000", 2),
        ("100000 100000", 1),
        ("5000 100000", 1),
        (f"{(CORES + 4) * 100_000} 100000", CORES),
        ("max 100000", CORES),
        ("nonsense", CORES),
        (None, CORES),
    ],
)
def test_cores_by_quota_and_affinity(tmp_path: Path, cpu_max: str | None, quota: int) -> None:
    if cpu_max is not None:
        (tmp_path / "cpu.max").write_text(f"{cpu_max}\n")
    assert usable_cores(tmp_path) == min(CORES, quota)


def test_affinity_limits_the_cores(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_record_has_what_the_design_says_and_no_path() -> None:
    found = describe()
    keys = "host cpu cpu_bfloat16 usable_cores memory_bytes memory_free_bytes shm_free_bytes gpu gpu_capability"
    assert set(found) == {*keys.split(), "versions", "git_commit", "page_cache"}
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


def test_peak_memory_is_in_bytes() -> None:
    held_now = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert 0.9 * held_now <= peak_memory()["rss_peak_bytes"] <= describe()["memory_bytes"]


@pytest.mark.parametrize(("quota", "cores"), [("100000", 1), ("-1", CORES)])
def test_cores_by_the_quota_of_an_older_cgroup(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == cores
