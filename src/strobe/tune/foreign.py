"""Measures somebody else's script for a search: it is probed, and trains in turns, with changes made from outside."""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strobe.diagnose.predict import step_of
from strobe.duel.foreign import Foreign
from strobe.duel.training import TakesTurns
from strobe.overrides import applied, key_of
from strobe.probe.asked import SIDES
from strobe.probe.changes import BATCH_SIZE, LOSSES, WANTED
from strobe.probe.script import alternative, probe_script
from strobe.probe.takeover import LEFT_ON
from strobe.process.fork import Failure
from strobe.records.places import OUTPUT
from strobe.records.run import Record, load_record
from strobe.tune.comparing import Comparing
from strobe.tune.record import Outcome
from strobe.tune.script import Script

RECENT = 30.0  # seconds within which a side that was measured need not be measured again
UNSIZED = "its batches do not show how many samples they hold, so batches of other sizes cannot be compared"


class Scripts(Comparing):
    """A script as it is, and with changes; it runs in the present working folder.

    Probes lie below the folder in ``looks``, those of one side in ``alone``; each side that is measured alone takes
    ``seconds`` at most. ``on``: which of logging and validation are on in trainings that take turns.
    """

    def __init__(
        self,
        script: Script,
        folder: Path,
        *,
        seconds: float,
        turns: int,
        turn_seconds: float,
        timeout: float,
        deadline: float,
        on: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, turns=turns, turn_seconds=turn_seconds, timeout=timeout, deadline=deadline)
        self._script, self._seconds, self._on = script, seconds, on
        self._resized = False  # whether the trainings that are compared have batches of other sizes
        self._known: dict[tuple[str, tuple[str, ...]], tuple[float, dict[str, Any] | None]] = {}  # when, and what
        self._folders: dict[tuple[str, ...], Path] = {}  # of the latest training with these changes

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        """As of :class:`Comparing`."""
        outcome = self._probed("looks", overrides, SIDES)
        if isinstance(outcome, Failure) and self._ready:  # trainings that may hold what it needs
            self._release()
            outcome = self._probed("looks", overrides, SIDES)
        if isinstance(outcome, Failure):
            self.failure = outcome.reason
            return None, "looks"
        record = load_record(outcome)
        if (ranks := record.count("world_size") or 1) > 1:
            self.failure = f"it trains on {ranks} ranks, and changes are tried on one: give devices=1"
            return None, f"looks/{outcome.name}"
        if step_of(record) is None:
            self.failure = f"{self._seconds:g} s held no step to measure; give a larger --seconds"
            return None, f"looks/{outcome.name}"
        self.failure = None
        return record, f"looks/{outcome.name}"

    def alone(self, overrides: Sequence[str], side: str, changes: Sequence[str]) -> dict[str, Any] | None:
        """As of :class:`Comparing`, in a process of its own each time; a side as it is, only when that is long ago."""
        texts = tuple(applied(overrides, changes))
        when, known = self._known.get((side, texts), (-RECENT, None))
        if time.monotonic() - when > RECENT:
            outcome = self._probed("alone", texts, (side,))
            known = None if isinstance(outcome, Failure) else alternative(load_record(outcome).summary, side, changes)
            self._known[side, texts] = time.monotonic(), known
        return known

    def compare(self, before: Sequence[str], after: Sequence[str], *, among: int = 1, proof: bool = False) -> Outcome:
        """As of :class:`Comparing`; the outcome of a proof has the losses of both."""
        self._resized = any(key_of(text) == BATCH_SIZE for text in {*before} ^ {*after})
        outcome = super().compare(before, after, among=among, proof=proof)
        if not proof:
            return outcome
        sides = {"before": before, "after": after}
        losses = {side: _losses(self._folders[tuple(texts)]) for side, texts in sides.items() if outcome.ratio}
        return replace(outcome, losses=losses if losses and all(losses.values()) else None)

    def _check(self, before: TakesTurns, after: TakesTurns) -> Failure | None:
        before.in_steps = after.in_steps = not (before.sized and after.sized)
        return Failure(UNSIZED) if before.in_steps and self._resized else None

    def _probed(self, place: str, overrides: Sequence[str], sides: Sequence[str]) -> Path | Failure:
        self.trainings += place == "looks"
        number, timeout = 1 + len(list((self.folder / place).glob("*"))), self._timeout()
        folder = self.folder / place / str(number)
        outcome = probe_script(
            self._script.words,
            folder,
            seconds=self._seconds,
            timeout=timeout,
            changes=overrides,
            sides=sides,
            remedy="; give a larger --budget" if timeout < self._longest else "",
        )
        if isinstance(outcome, Failure) and number > 1:  # of a search that has measured nothing nothing is kept
            return replace(outcome, reason=f"{outcome.reason} (its output is in {folder / OUTPUT})")
        return outcome

    def _training(self, overrides: Sequence[str], folder: Path) -> Foreign:
        self._folders[tuple(overrides)] = folder
        variables = {WANTED: json.dumps(list(overrides)), LOSSES: str(_file(folder)), "PYTHONDONTWRITEBYTECODE": "1"}
        variables[LEFT_ON] = ",".join(self._on)
        command = [sys.executable, *self._script.words]
        return Foreign(command, folder, variables=os.environ | variables, timeout=self._timeout())


def _file(folder: Path) -> Path:
    return folder.absolute() / "losses.txt"


def _losses(folder: Path) -> list[float]:
    return [float(line) for line in _file(folder).read_text().splitlines()] if _file(folder).is_file() else []
