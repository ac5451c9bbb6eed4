"""Shared by all tests: tiles, runs of the application, and that no test leaves something to the next."""

import gc
import multiprocessing.forkserver
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hydra.core.hydra_config import HydraConfig

from strobe.app.build import PRELOAD
from strobe.app.data.synthetic import generate
from strobe.app.needed import is_missing as missing
from strobe.app.storage.serving import CREDENTIALS, serving
from strobe.diagnose import calibrated
from support.files import listing
from support.interruptions import own_signals
from support.places import DATA
from support.processes import MARK, end_left_running
from support.runs import QUICK, SHORT, Ended, Train, trained

# Two runs that wait for each other's threads on few cores are slower than two runs on one thread each.
torch.set_num_threads(1)

LONGEST = ("test_strobe_probe.py", "test_bench_command.py", "test_tune_command.py", "test_foreign.py")  # files
MAY_LACK = {  # by STROBE_REQUIRE: why a test may be skipped, in its own words
    "all": ("intended",),
    "installed": ("intended", "needs real data"),
}
SHARING = {"sample_root", "tiles", "finished_run"}  # fixtures whose folders nobody may change
WHOLE = ("profiler=trace", "checkpoint.save=resume", "trainer.max_epochs=2", "trainer.limit_train_batches=11")
WHOLE += ("trainer.limit_test_batches=null",)
_shared: dict[Path, dict[str, tuple[int, int]]] = {}  # what the folders that tests share hold


def pytest_configure(config: pytest.Config) -> None:
    """Take signals as in a terminal, whatever this was started from: children of a process inherit what it ignores.

    The server of fresh processes has imported what any of them needs, whichever test comes first and begins it.
    """
    os.environ[MARK] = str(os.getpid())
    os.environ.pop("COLUMNS", None)  # which pytest-xdist sets
    preload = multiprocessing.forkserver.set_forkserver_preload
    multiprocessing.forkserver.set_forkserver_preload = lambda names: preload([PRELOAD])
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: the tests go on, and their children take it
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, each in its random order: all would wait for one that began last."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_collection_finish() -> None:
    """Leave what was imported out of garbage collections, which tests ask for, and which take seconds of each run."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how to get the same order again."""
    seed = getattr(config.option, "randomly_seed", None)
    if isinstance(seed, int):
        terminalreporter.write_line(f"The order was random: the same again with --randomly-seed={seed}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """End what a failed test has started; fail where something that ``STROBE_REQUIRE`` asks for is missing."""
    report, required = (yield), os.environ.get("STROBE_REQUIRE", "")
    if report.skipped and not hasattr(report, "wasxfail") and required in MAY_LACK:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(words in reason for words in MAY_LACK[required]):
            report.outcome, report.longrepr = "failed", f"{reason}; STROBE_REQUIRE={required} needs it"
    if report.failed and report.when != "teardown":
        end_left_running(f"{item.nodeid} ({report.when})")
    return report


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    left = end_left_running(patience=5.0)
    assert not left, "\n".join(["left running:", *left])


@pytest.fixture(autouse=True)
def _shared_folders_stay_as_they_are(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if not SHARING & set(request.fixturenames):
        return
    for folder, before in _shared.items():
        if before != (now := listing(folder)):
            _shared[folder] = now
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            pytest.fail(f"tests share {folder}, and this one (or one beside it) changed in it: {', '.join(changed)}")


@pytest.fixture(autouse=True)
def uncalibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are predictions' own, whatever calibration the program comes with."""
    monkeypatch.setattr(calibrated, "calibration", lambda: None)


@pytest.fixture(autouse=True)
def own_hydra() -> Iterator[None]:
    """No test sees the configuration of another one, nor of a fixture that several share."""
    HydraConfig.instance().cfg = None
    yield
    HydraConfig.instance().cfg = None


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    with own_signals():
        yield


@pytest.fixture(autouse=True)
def _no_profiler_is_left_on() -> Iterator[None]:
    yield
    assert not torch.autograd._profiler_enabled(), "a torch.profiler is on after this test: the next one finds it"


@pytest.fixture(scope="session")
def sample_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which ``data=sample data.tiles_per_class=10`` finds its tiles. Not to be changed."""

    def make(root: Path) -> None:
        generate(root / "tiles" / "seed42-10", tiles_per_class=10, seed=42)

    return _made_once(tmp_path_factory, "data", make)


@pytest.fixture(scope="session")
def unread_root(tmp_path_factory: pytest.TempPathFactory, sample_root: Path) -> Path:
    """As ``sample_root``, for this process alone: what another one reads cannot be thrown out of the page cache."""
    return Path(shutil.copytree(sample_root, tmp_path_factory.mktemp("unread") / "data"))


@pytest.fixture(scope="session")
def tiles(sample_root: Path) -> Path:
    """A folder of class folders: real tiles where there are some, else generated ones. Not to be changed."""
    real = DATA / "EuroSAT_MS"
    return real if real.is_dir() else sample_root / "tiles" / "seed42-10"


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server of objects, whose credentials are in the environment while it serves."""
    if missing("obstore") or not Path(sys.executable).with_name("weed").exists():
        pytest.skip("SeaweedFS or the storage's client is not installed")
    with pytest.MonkeyPatch.context() as patch, serving(tmp_path_factory.mktemp("storage")) as endpoint:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        patch.setenv("no_proxy", "*")
        yield endpoint


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, sample_root: Path) -> Ended:
    """A whole run that completed: two epochs of resnet18, checkpoints, a test, traces. Not to be changed."""

    def make(folder: Path) -> None:
        ended = trained(folder / "run", *WHOLE, defaults=SHORT, data_root=sample_root)
        assert ended.code == 0, ended.output
        (folder / "said").write_text(ended.output)

    folder = _made_once(tmp_path_factory, "finished", make)
    return Ended(0, (folder / "said").read_text(), folder / "run")


@pytest.fixture
def train(tmp_path: Path, sample_root: Path) -> Train:
    """Run ``train.py`` with overrides in this process: by default a few steps of a tiny network on ten tiles a class.

    ``whole``: of resnet18, with checkpoints and the test stage; ``quick=False``: as it is configured.
    """

    def run(*overrides: str, quick: bool = True, whole: bool = False, name: str = "run") -> Ended:
        defaults = SHORT if whole else QUICK if quick else ()
        return trained(tmp_path / name, *overrides, defaults=defaults, data_root=sample_root)

    return run


def _made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first test makes which needs it, for all tests on all workers; each of them may only read."""
    workers = "PYTEST_XDIST_WORKER" in os.environ
    base = factory.getbasetemp().parent if workers else factory.getbasetemp()
    folder, made = base / name, base / f"{name}.made"
    with FileLock(base / f"{name}.lock"):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            made.touch()
    _shared[folder] = listing(folder)
    return folder
