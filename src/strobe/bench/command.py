"""Measures one suite; ``strobe.bench.ending`` shows and saves the results."""

import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from strobe.app.build import PRELOAD
from strobe.app.config.checks import check
from strobe.app.config.mistakes import MISTAKES, mistake
from strobe.app.config.register import composing
from strobe.bench.ending import finish
from strobe.bench.harness import baseline
from strobe.bench.harness.declare import Input, Request, Suite
from strobe.bench.harness.results import NAME, Results
from strobe.bench.harness.schedule import Bar, Campaign, Settings
from strobe.errors import ConfigError, DataError, StrobeError
from strobe.measure.environment import installed
from strobe.overrides import key_of
from strobe.present.terminal import clock, say
from strobe.present.terminal import console as output
from strobe.process.fork import Failure, in_fresh_process
from strobe.process.locks import alone_in

SUITES = Path(__file__).with_name("suites")
HOW_MUCH = {"rounds", "turn_seconds", "budget_seconds", "precision", "timeout_seconds", "baseline", "fail_if_slower"}
OWN = HOW_MUCH | {"suite", "quick"}  # keys that train.py's configuration does not have
FINDING = 600.0  # seconds in which the input must have been found, or generated


def names() -> list[str]:
    """The suites, in alphabetical order."""
    return sorted(name for name in (path.stem for path in SUITES.iterdir()) if not name.startswith("_"))


def declared(cfg: DictConfig) -> Suite:
    """The chosen suite; a ConfigError says which value of ``suite`` is wrong."""
    chosen = HydraConfig.get().runtime.choices["suite"]
    module = f"strobe.bench.suites.{chosen}" + ".suite" * (SUITES / chosen).is_dir()
    suite: Suite = replace(import_module(module).declare(cfg), name=chosen)
    if suite.form not in (None, cfg.data.form):
        raise ConfigError(
            f"suite={chosen} measures {suite.form}, and data has the form {cfg.data.form}; leave data=... out, or give "
            "data=image_folder data.root=DIR"
        )
    known = {cell.name for cell in suite.cells}
    if len(known) < len(suite.cells):
        raise ConfigError(f"suite={suite.name} would measure a cell twice; give each value of its lists once")
    assert all(cell.against is None or cell.against in known for cell in suite.cells), "a ratio to no cell"
    return suite


def run(cfg: DictConfig) -> int:
    """Measure a suite, show and save the results; returns the exit code.

    Raises:
        StrobeError: Something that the user can fix, before anything is measured.
        KeyboardInterrupt: After Ctrl-C; what was measured is kept.
    """
    folder = Path(HydraConfig.get().runtime.output_dir)
    console = output()
    check(cfg)
    suite = declared(cfg)
    overrides = own_overrides(suite)
    settings = settings_of(cfg, suite)
    earlier = baseline.wanted(cfg.baseline, cfg.fail_if_slower, suite.name, settings.rounds)
    with alone_in(folder, "hydra.run.dir"), tempfile.TemporaryDirectory(prefix="strobe-bench-") as scratch:
        request = Request(cfg, HydraConfig.get().runtime.choices["data"], tuple(overrides))
        source, machine = find_input(suite, request, Path(scratch), cfg.timeout_seconds)
        results = Results(suite, header(cfg, suite, source, machine))
        if earlier is not None:
            baseline.require_same_work(results.header, earlier)
        say(console, f"{suite.title}: {len(suite.cells)} cells, {source.title}")
        if results.resume(folder / NAME):
            say(console, f"Continuing {folder / NAME}")
            if (results.header["environment"]["git_commit"] or "").endswith("+"):
                say(console, "The code has uncommitted changes, so it may have changed since the first part.")
        campaign = Campaign(results, settings, source, [*source.overrides, *overrides], folder)
        say(console, f"About {clock(campaign.left())} in all, or less if cells are known well enough sooner")
        try:
            with Bar(console, results, settings.rounds) as bar:
                campaign.measure(bar)
        except KeyboardInterrupt:
            results.save(folder, "interrupted")
            again = shlex.join(["python", "-m", "strobe.bench", *_task(), f"hydra.run.dir={folder}"])
            say(console, f"Interrupted; what was measured is kept. Continue with: {again}")
            raise
    return finish(console, results, folder, earlier)


def settings_of(cfg: DictConfig, suite: Suite) -> Settings:
    """How much is measured: what the user gave, or else the suite's defaults."""
    plan = suite.quick if cfg.quick else suite.full
    return Settings(
        rounds=plan.rounds if cfg.rounds is None else cfg.rounds,
        turn=plan.turn if cfg.turn_seconds is None else cfg.turn_seconds,
        budget=plan.budget if cfg.budget_seconds is None else cfg.budget_seconds,
        precision=cfg.precision,
        timeout=cfg.timeout_seconds,
        seed=cfg.seed,
    )


def _task() -> list[str]:
    """The user's overrides, except where to write."""
    return [override for override in HydraConfig.get().overrides.task if not override.startswith("hydra.")]


def own_overrides(suite: Suite) -> list[str]:
    """The user's overrides of train.py's configuration; a ConfigError for one that the suite's cells set themselves."""
    kept = []
    for override in _task():
        key = key_of(override)
        if key.partition(".")[0] in OWN:
            continue
        if instead := suite.varies.get(key):
            raise ConfigError(f"{override} is what the cells of suite={suite.name} differ in; give {instead} instead")
        kept.append(override)
    return kept


def find_input(suite: Suite, request: Request, scratch: Path, timeout: float) -> tuple[Input, dict[str, Any]]:
    """The input and the machine, found by a process of its own, so that torch is not imported here."""
    outcome = in_fresh_process(_find, suite.find, request, scratch, timeout=max(FINDING, timeout), preload=[PRELOAD])
    if isinstance(outcome, Failure):
        raise DataError(
            f"The input of suite={suite.name} was not found or generated: {outcome.reason}; "
            "check that data.root names your files, and that memory and the temporary folder have room"
        )
    if isinstance(outcome, str):
        raise DataError(outcome)
    source, machine = outcome
    assert isinstance(source, Input)
    return source, machine


def _find(pipe: Connection, search: Callable[[Request, Path], Input], request: Request, scratch: Path) -> None:
    """Runs in that process: sends the input and the machine, or the reason why it cannot."""
    from strobe.measure import environment

    try:
        pipe.send((search(request, scratch), environment.describe(start_gpu=True)))
    except StrobeError as error:
        pipe.send(" ".join(str(error).split()))


def header(cfg: DictConfig, suite: Suite, source: Input, machine: dict[str, Any]) -> dict[str, Any]:
    """What ``results.json`` holds besides the cells."""
    machine["versions"] |= dict.fromkeys(suite.packages) | installed(*suite.packages)
    caches = {cell.cache for cell in suite.cells if cell.cache}
    return {
        "suite": suite.name,
        "title": suite.title,
        "about": suite.about,
        "quick": cfg.quick,
        "input": {"told": source.title, "generated": source.generated},
        "overrides": [override for override in _task() if override.partition("=")[0] not in HOW_MUCH],
        "command": shlex.join(["python", "-m", "strobe.bench", *_task()]),
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "environment": machine | {"page_cache": " and ".join(sorted(caches, reverse=True)) or None},
        "settings": asdict(settings_of(cfg, suite)),
        "conclusions": [],
    }


def show(overrides: Sequence[str]) -> None:
    """Print all suites, or the cells of ``suite=NAME`` with the other overrides."""
    console = Console()
    chosen = [override.removeprefix("suite=") for override in overrides if override.startswith("suite=")]
    others = [override for override in overrides if not override.startswith("suite=")]
    wanted = [name for override in chosen for name in override.split(",")]
    if unknown := set(wanted) - set(names()):
        raise ConfigError(f"suite={','.join(sorted(unknown))} is not there; give one of {', '.join(names())}")
    of_one = next((override for override in others if override.lstrip("+~").startswith("suite.")), None)
    if of_one and len(wanted) != 1:
        raise ConfigError(f"{of_one} is a key of one suite; give suite=NAME too")
    for name in wanted or names():
        try:
            with composing():
                cfg = compose("bench", [f"suite={name}", *others], return_hydra_config=True)
        except MISTAKES as error:
            raise mistake(error, "bench") from error
        HydraConfig.instance().set_config(cfg)
        check(cfg)
        suite = declared(cfg)
        say(console, f"suite={suite.name}: {suite.title}, {len(suite.cells)} cells")
        if wanted:
            console.print(suite.about, markup=False, highlight=False)  # which is wrapped
            say(console, *(f"  {cell.name}" for cell in suite.cells))
    if not wanted:
        say(console, "\nstrobe bench --list suite=NAME lists its cells")
