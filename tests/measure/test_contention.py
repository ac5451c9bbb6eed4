"""What else the machine did, from its own counters."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strobe.measure import contention
from strobe.measure.environment import usable_cores
from support.files import plant

BURN = [sys.executable, "-S", "-c", "import time\nwhile time.process_time() < {}: pass"]


def burning(seconds: float) -> list[str]:
    return [part.format(seconds) for part in BURN]


@contextlib.contextmanager
def strange(*command: str) -> Iterator[int]:
    """A process that is nobody's child."""
    start = f"import subprocess; print(subprocess.Popen({command}, stdout=-3, stderr=-3).pid)"  # DEVNULL
    pid = int(subprocess.run([sys.executable, "-S", "-c", start], capture_output=True, text=True, check=True).stdout)
    yield pid
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stranger() -> Iterator[int]:
    """One that computes."""
    with strange(*burning(60)) as pid:
        yield pid


def test_a_strangers_computing_is_of_others(stranger: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "NAMED", 1000)  # on a busy machine three others may have used more
    before = contention.read()
    time.sleep(0.5)
    found = contention.between(before, contention.read(), usable_cores())
    named = {one["pid"]: one["cores"] for one in found["busiest"]}
    assert 0 < named[stranger] <= found["others"] * usable_cores() + 0.1  # each counts in ticks


def test_a_stranger_in_python_is_named_by_its_script_and_not_by_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "NAMED", 1000)
    (script := tmp_path / "burn.py").write_text("while True:\n    pass\n")
    with strange(sys.executable, "-S", "-X", "utf8", str(script), "--token=secret") as pid:
        before = contention.read()
        time.sleep(0.5)
        [found] = [one for one in contention.between(before, contention.read(), 2)["busiest"] if one["pid"] == pid]
    assert found["name"].split() == [found["name"].split()[0], "burn.py"]
    assert found["name"].startswith("python")


def test_own_children_are_not_others() -> None:
    before = contention.read()
    subprocess.run(burning(0.5), check=True)
    found = contention.between(before, contention.read(), usable_cores())
    assert found["own"] * found["seconds"] * usable_cores() >= 0.4
    assert found["own"] >= found["children"] >= 0.4 / found["seconds"] / usable_cores()
    shares = [found[name] for name in ("own", "others", "stolen", "idle")]
    assert all(share >= 0 for share in shares)
    assert sum(shares) >= 0.8


@pytest.mark.parametrize(
    ("place", "line"), [("cpu.stat", "throttled_usec {}000000"), ("cpu/cpu.stat", "throttled_time {}000000000")]
)
def test_a_quota_is_read_of_either_kind_of_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, line: str
) -> None:
    monkeypatch.setattr(contention, "_CGROUP", tmp_path)
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)

    def at(seconds: float, throttled: int, periods: int, stopped: int) -> contention.Reading:
        path.write_text(f"nr_periods {periods}\nnr_throttled {stopped}\n{line.format(throttled)}\n")
        return replace(contention.read(), at=seconds)

    before = at(0, throttled=0, periods=0, stopped=0)
    assert contention.between(before, at(10, 4, 100, 80), 1)["throttled"] == pytest.approx(0.4)
    # Of eight processors: the times of all of them add up.
    assert contention.between(before, at(10, 32, 100, 80), 1)["throttled"] == pytest.approx(0.8)


def test_the_group_with_the_smallest_quota_tells_how_long_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "_CGROUP", tmp_path)
    monkeypatch.setattr(contention, "_PROC", tmp_path / "proc")
    stat = b"nr_periods 100\nnr_throttled 40\nthrottled_usec 3000000\n"
    none = b"nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
    plant(tmp_path, {"proc/self/cgroup": b"0::/slice/job\n", "slice/cpu.max": b"100000 100000\n"})
    plant(tmp_path, {"slice/cpu.stat": stat, "slice/job/cpu.stat": none, "cpu.stat": b"usage_usec 5\n"})
    found = contention.read()
    assert (found.throttled, found.periods, found.stopped) == (3.0, 100, 40)


def test_a_machine_that_tells_nothing_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "_CGROUP", tmp_path)
    monkeypatch.setattr(contention, "_PROC", tmp_path)
    monkeypatch.setattr(contention, "_CORES", tmp_path)
    found = contention.between(contention.read(), contention.read(), 2)
    unknown = [
        "children",
        "others",
        "stolen",
        "idle",
        "throttled",
        "starved",
        "delayed",
        "swapped_bytes",
        "choked",
        "throttles",
    ]
    assert {name for name, value in found.items() if value is None} == {*unknown}


def test_clocks_and_heat_are_read_where_the_machine_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for core in os.sched_getaffinity(0):
        for name, value in (("cpufreq/scaling_cur_freq", 2_500_000), ("thermal_throttle/core_throttle_count", 3)):
            file = tmp_path / f"cpu{core}" / name
            file.parent.mkdir(parents=True)
            file.write_text(f"{value}\n")
    monkeypatch.setattr(contention, "_CORES", tmp_path)
    before = contention.read()
    file.write_text("5\n")
    found = contention.between(before, contention.read(), usable_cores())
    assert found["hertz"] == [2.5e9, 2.5e9]
    assert found["throttles"] == (2 if len(os.sched_getaffinity(0)) <= contention.MOST_CORES else 0)
    monkeypatch.setattr(contention, "_CORES", tmp_path / "none")
    found = contention.between(before, contention.read(), usable_cores())
    assert found["hertz"] == [2.5e9, None]
    assert found["throttles"] is None
