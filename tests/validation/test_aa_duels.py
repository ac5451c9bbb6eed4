"""Duels of scripts with themselves: how those that find a difference are counted; trainings are made up."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from strobe.errors import DataError
from strobe.measure.timing import Block
from strobe.process.fork import Failure
from strobe.validation import aa_duels, aa_test
from support.duels import Made
from support.refusals import refusal


class Equal(Made):
    """Both sides are as fast."""

    random = Random(3)

    def __init__(self, command: list[str], folder: Path, **named: Any) -> None:
        super().__init__([*command, "rate=1"], folder, **named)
        self.random, self.gone = Equal.random, "gone" in command

    def start(self) -> Block | Failure:
        return Failure("it has no data") if self.gone else super().start()


def test_scripts_fight_themselves_until_the_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aa_test, "Foreign", Equal)
    with pytest.raises(SystemExit) as ended:
        aa_test.main(["--duels", "a.py", "b.py --lr 1", "--minutes", "0.005", "--keep", str(tmp_path)])
    said, kept = capsys.readouterr().out, json.loads((tmp_path / "duels.json").read_text())
    assert [script for script, _ in kept[:2]] == ["a.py", "b.py --lr 1"][: len(kept)]
    assert {len(ratios) for _, ratios in kept} == {aa_duels.QUADS}
    assert f" of {len(kept)} (" in said
    with pytest.raises(SystemExit) as again:
        aa_test.main(["--from", str(tmp_path)])
    assert again.value.code == ended.value.code
    assert said.endswith(capsys.readouterr().out)


@pytest.mark.parametrize(("wrong", "good"), [(2, True), (9, False)])
def test_differences_between_equals_are_counted(
    wrong: int, good: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    equal = [math.exp(away) for away in (-0.02, 0.01, 0.01, 0.02, -0.01, 0)]
    duels = [["a.py", equal]] * (40 - wrong) + [["b.py", [0.9 * each for each in equal]]] * wrong
    (tmp_path / "duels.json").write_text(json.dumps(duels))
    assert aa_duels.tell(tmp_path, Console(width=200), 0.05) is good
    said = capsys.readouterr().out
    assert f"duels of equals that find a difference: {wrong} of 40 (" in said
    assert "2 scripts; the median interval reaches " in said


def test_a_script_that_cannot_train_is_told(tmp_path: Path) -> None:
    told = {"minutes": 0.0, "seconds": 0.1, "seed": 0, "begin": Equal}
    sentence = refusal(lambda: aa_duels.fight(["a.py gone"], tmp_path, Console(), **told), DataError)  # type: ignore[arg-type]
    assert sentence == "a.py gone cannot train: it has no data"
