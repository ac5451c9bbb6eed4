"""``strobe.tune`` on a made-up machine: what is shown, kept and recommended, without training."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig

from strobe.app.config.register import CONF, register
from strobe.app.tuning.command import run
from strobe.errors import ConfigError, StrobeError
from support.landscape import Made, Rate
from support.pages import Page, of_class, words_of
from support.refusals import refusal

OFFERS = (("loader=native", 1.5), ("data.batch_size=128", 1.3), ("model.channels_last=true", 1.2))
GIVEN = "data.tiles_per_class=10"

Tune = Callable[..., str]


def rate(chosen: Mapping[str, str]) -> float:
    return 140.0 if chosen["loader"] == "native" else 100.0


@pytest.fixture
def tune(tmp_path: Path, own_hydra: None, capsys: pytest.CaptureFixture[str]) -> Iterator[Tune]:
    """Run the command in a folder of its own, with a copy of conf/, on a machine; what it says."""
    shutil.copytree(CONF, tmp_path / "conf")
    register()

    def tuned(machine: Made, *overrides: str) -> str:
        where = [f"hydra.run.dir={machine.folder}", f"hydra.runtime.output_dir={machine.folder}"]
        cfg = compose("tune", [GIVEN, *overrides, *where], return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        machine.folder.mkdir(exist_ok=True)
        run(cfg, lambda *_, **__: nullcontext(machine))
        return capsys.readouterr().out

    with initialize_config_dir(str(tmp_path / "conf"), version_base="1.3"):
        yield tuned


def made(folder: Path, rate: Rate = rate) -> Made:
    return Made(folder / "search", rate, OFFERS)


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "search" / "tune.json").read_text())
    return found


def test_what_the_proof_shows_is_recommended(tune: Tune, tmp_path: Path) -> None:
    said = tune(made(tmp_path))
    record = record_of(tmp_path)
    assert record["proof"]["verdict"] == "faster"
    assert record["recommended"] == record["best"] == [GIVEN, "loader=native"]
    assert [trial["verdict"] for trial in record["trials"]] == ["faster", "no difference", "no difference"]
    assert "  loader=native: 1.40 times (1.37 to 1.43), predicted 1.50 times (1.35 to 1.65): kept\n" in said
    assert "1.40 times (1.37 to 1.43) as fast as what you gave, measured again at the end. Stopped after" in said
    assert ": nothing else helped." in said
    assert said.splitlines()[-2:] == [
        f"python train.py {GIVEN} loader=native",
        str(tmp_path / "search" / "search.html"),
    ]


def page_of(folder: Path) -> Page:
    return Page((folder / "search" / "search.html").read_text(encoding="utf-8"))


def test_the_page_holds_the_trials_the_proof_and_what_to_type(tune: Tune, tmp_path: Path) -> None:
    tune(made(tmp_path))
    page = page_of(tmp_path)
    assert page.sections == ["tried", "next", "found", "method"]
    assert [words_of(row) for row in page.rows("tried")] == [
        "loader=native loader=native is better 1.50 times 1.35 to 1.65 1.40 times 1.37 to 1.43 kept",
        *(
            f"{change} {change} is better {ratio} 1.00 times 0.98 to 1.02 no difference"
            for change, ratio in (
                ("data.batch_size=128", "1.30 times 1.17 to 1.43"),
                ("model.channels_last=true", "1.20 times 1.08 to 1.32"),
            )
        ),
    ]
    assert [cell.get("data-label") for cell in page.rows("tried")[0]][1:] == [
        *("Because", "Predicted", "Measured", "Verdict")
    ]
    assert f"Train faster python train.py {GIVEN} loader=native" in words_of(page.section("next"))
    assert [words_of(row) for row in page.rows("found")] == ["loader skimage native"]
    assert "The proof: 1.40 times (1.37 to 1.43) as fast." in words_of(page.section("found"))
    assert "./tune.json" in page.links
    assert words_of(of_class(page.tree, "badge")[0]) == "1.40\u00d7 faster"


@pytest.mark.parametrize(
    ("breaks", "said"),
    [(0, "Nothing was tried."), (3, "Stopped before the last comparison, so nothing is recommended")],
)
def test_a_search_that_is_broken_off_leaves_a_page(breaks: int, said: str, tune: Tune, tmp_path: Path) -> None:
    machine = made(tmp_path)
    machine.breaks = breaks
    with pytest.raises(KeyboardInterrupt):
        tune(machine)
    page = page_of(tmp_path)
    assert said in page.text
    assert "Go on with the search strobe tune" in words_of(page.section("next"))
    assert len(page.rows("tried") if breaks else []) == breaks


def test_what_the_proof_does_not_show_is_not_recommended(tune: Tune, tmp_path: Path) -> None:
    machine = made(tmp_path)
    honest = machine.compare
    machine.compare = lambda *sides, proof=False, **_: honest(*(sides[::-1] if proof else sides))
    said = tune(machine)
    record = record_of(tmp_path)
    assert (record["best"], record["recommended"]) == ([GIVEN, "loader=native"], [GIVEN])
    assert "Measured again at the end, it is slower (0.71 times (0.70 to 0.73)): keep what you have." in said
    assert said.splitlines()[-2] == f"python train.py {GIVEN}"
    page = page_of(tmp_path)
    assert f"Keep what you have python train.py {GIVEN}" in words_of(page.section("next"))
    assert "Found, not recommended" in words_of(page.section("found"))


def test_a_completed_search_is_not_written_over(tune: Tune, tmp_path: Path) -> None:
    tune(machine := made(tmp_path))
    assert record_of(tmp_path)["status"] == "completed"
    again = refusal(lambda: tune(made(tmp_path)), ConfigError)
    assert again.startswith(f"hydra.run.dir={machine.folder} holds a search that is completed")


@pytest.mark.parametrize("faster", [True, False])
def test_a_preset_is_written_of_what_is_faster(tune: Tune, tmp_path: Path, faster: bool) -> None:
    said = tune(made(tmp_path, rate if faster else lambda _: 100.0), "tune.save=tuned")
    assert ("Saved: python train.py experiment=tuned" in said) == faster
    assert ("nothing is measurably faster, so nothing was written" in said) != faster
    assert (tmp_path / "conf" / "experiment" / "tuned.yaml").exists() == faster
    if faster:
        assert compose("config", ["experiment=tuned"]) == compose("config", [GIVEN, "loader=native"])


def test_a_start_that_cannot_be_measured_is_told_in_a_sentence(tune: Tune, tmp_path: Path) -> None:
    machine = made(tmp_path)
    machine.failure = "data.root=nowhere holds no tiles"
    machine.probe = lambda _: (None, "looks/1")
    assert refusal(lambda: tune(machine), StrobeError) == machine.failure
    assert not machine.folder.exists()
