"""Whole searches in which nothing helps, by made-up turns: how often one ends with something that is called faster."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from strobe.duel.paired_trial import Duel, duel
from strobe.measure.statistics import FALSE_ALARM
from strobe.present.terminal import ProgressDisplay
from strobe.records.run import Record
from strobe.tune.record import Outcome, Tuning, begin
from strobe.tune.search import PROPOSALS, Search
from support.duels import Turns
from support.landscape import Made

SEARCHES = 1000
OFFERS = [(f"threads={count}", 1.5) for count in range(1, PROPOSALS + 1)]


class Equals(Made):
    """A machine on which all configurations are as fast; they are compared as real ones are."""

    def __init__(self, folder: Path, random: np.random.Generator, noise: float, correlated: float) -> None:
        super().__init__(folder, lambda _: 100.0, OFFERS)
        self.random, self.noise, self.correlated = random, noise, correlated

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        return self.record(overrides), "looks/1"

    def compare(self, before: Sequence[str], after: Sequence[str], *, among: int = 1, proof: bool = False) -> Outcome:
        sides = [Turns(self.random, self.noise * share, self.correlated) for share in (0.0, 1.0)]
        found = duel(*sides, early=not proof, alpha=FALSE_ALARM / among, seed=int(self.random.integers(1 << 30)))
        assert isinstance(found, Duel)
        return Outcome(found.ratio.verdict, found.ratio.as_record())


@pytest.mark.parametrize(
    ("noise", "correlated"),
    [
        *((0.05, 0.0), (0.1, 0.3), (0.2, 0.6)),
        *(pytest.param(noise, correlated, marks=pytest.mark.slow) for noise, correlated in ((0.05, 0.6), (0.2, 0.0))),
    ],
)
def test_no_more_than_one_search_in_twenty_ends_with_a_false_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: float, correlated: float
) -> None:
    monkeypatch.setattr(Tuning, "save", lambda _: None)
    random, display = np.random.default_rng(16), ProgressDisplay(Console(quiet=True))
    monkeypatch.setattr(display, "begins", lambda *_: None)
    monkeypatch.setattr(display, "say", lambda *_: None)
    kept = recommended = 0
    for _ in range(SEARCHES):
        tuning = begin(tmp_path, ["loader=skimage"], None, command="", budget=1e9)
        Search(tuning, Equals(tmp_path, random, noise, correlated), display, clock=lambda: 0.0).run()
        tried = [trial for trial in tuning.trials if not trial.get("left_out")]
        assert len(tried) == PROPOSALS
        kept += any(trial["verdict"] == "faster" for trial in tried)
        recommended += tuning.recommended != tuning.header["given"]
    assert kept <= 0.05 * SEARCHES
    assert recommended <= 0.05 * SEARCHES  # the proof is a trial of its own, and there is one
