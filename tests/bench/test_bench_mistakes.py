"""Mistakes that ``python -m strobe.bench`` refuses before it starts a process."""

import pytest

from strobe.app.config.checks import check
from strobe.app.config.register import register
from strobe.bench.command import declared, own_overrides, settings_of, show
from strobe.bench.harness.baseline import wanted
from strobe.errors import ConfigError, StrobeError
from support.composing import bench_config
from support.refusals import refusal

pytestmark = pytest.mark.usefixtures("own_hydra")


def prepare(given: list[str]) -> None:
    """All that the command does before it looks for its input."""
    cfg = bench_config(*given)
    check(cfg)
    suite = declared(cfg)
    own_overrides(suite)
    wanted(cfg.baseline, cfg.fail_if_slower, suite.name, settings_of(cfg, suite).rounds)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["suite=loading", "loader=native"], ["loader=native is what the cells of suite=loading differ in"]),
        (["suite=loading", "data.batch_size=3"], ["suite.batch_sizes=[N,...]"]),
        (["suite=loading", "suite.loaders=[moon]"], ["suite.loaders", "moon", "native"]),
        (["suite=loading", "suite.loaders=[pil]"], ["suite.loaders", "pil", "native"]),
        (["suite=loading", "suite.loaders=[native,native]"], ["suite.loaders=[native,native]", "each once"]),
        (["suite=loading", "suite.batch_sizes=[0]"], ["suite.batch_sizes=[0]", "at least 1"]),
        (["suite=loading", "suite.threads=[-1]"], ["suite.threads=[-1]", "at least 1"]),
        (["suite=loading", "suite.batches=0"], ["suite.batches=0", "at least 1"]),
        (["suite=loading", "baseline=nowhere"], ["baseline=nowhere is not a file"]),
        (["suite=loading", "fail_if_slower=5%"], ["fail_if_slower=5% needs an earlier result"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_told_in_a_sentence(given: list[str], words: list[str]) -> None:
    said = refusal(lambda: prepare(given), ConfigError)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["suite.threads=[2]"], "suite.threads=[2] is a key of one suite; give suite=NAME too"),
        (["suite=loading", "suite.moon=2"], "moon"),
        (["suite=loading", "suite.loaders=[moon]"], "suite.loaders"),
        (["suite=loading", "rounds=0"], "rounds=0 is out of range"),
    ],
)
def test_so_it_is_by_the_list(given: list[str], words: str) -> None:
    register()
    assert words in refusal(lambda: show(given), StrobeError)
