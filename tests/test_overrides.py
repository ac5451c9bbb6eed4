"""The grammar of overrides, and that Hydra agrees where it is asked."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from strobe.app.config.compose import parse
from strobe.overrides import applied, cell_of, joined, key_of, quoted


@pytest.mark.parametrize("override", ["a.b=1", "+a.b=1", "++a.b={c: 'd=e'}", "~a.b", "~a.b=1", "a.b="])
def test_the_key_is_the_one_that_hydra_finds(override: str) -> None:
    assert key_of(override) == OverridesParser.create().parse_override(override).key_or_group == "a.b"


def test_repeats_differ_in_seed_and_output_alone() -> None:
    given = ["+trainer.x=1", "loader=native", "seed=3", "hydra.run.dir=a", "hydra/launcher=b", "sweep.repeats=3"]
    assert cell_of([*given, "ckpt_path=last", "loader=pil"]) == {"trainer.x": "1", "loader": "pil"}
    assert cell_of(["data.seed=3", "~logger", "a=b=c"]) == {"data.seed": "3", "~logger": "", "a": "b=c"}


@pytest.mark.parametrize(
    ("typed", "swept"),
    [
        ("lr=1e-3", "lr=0.001"),
        ("x=TRUE", "x=True"),
        ("d={a: 1}", "d={a:1}"),
        ("r='/a b'", "r=/a\\ b"),
        ("~x", "~x=null"),
        ("~x=1e-3", "~x=0.001"),
        ("y=", "y=''"),
    ],
)
def test_values_are_alike_however_they_were_spelt(typed: str, swept: str) -> None:
    assert cell_of([typed], parse) == cell_of([swept], parse)


@pytest.mark.parametrize("typed", ["x=1,2", "x=[1", "x=${now:%S}"])
def test_what_hydra_does_not_evaluate_stays_as_typed(typed: str) -> None:
    assert cell_of([typed], parse) == cell_of([typed])


def test_of_each_key_the_last_override_is_kept() -> None:
    given = ["data=sample", "ceilings=true", "data.batch_size=2", "+callbacks.slow.seconds=1", "data.batch_size=4"]
    assert joined(given, ["ceilings=false", "callbacks.slow.seconds=2"]) == [
        "data=sample",
        "data.batch_size=4",
        "ceilings=false",
        "callbacks.slow.seconds=2",
    ]


def test_an_override_takes_the_place_and_the_sign_of_the_one_that_it_replaces() -> None:
    own = ["data=eurosat", "++data.batch_size=32", "+trainer.profiler=null"]
    assert applied(own, ["data.batch_size=64"]) == ["data=eurosat", "++data.batch_size=64", "+trainer.profiler=null"]


def test_another_choice_drops_the_options_of_the_old_one() -> None:
    own = ["loader=native", "loader.threads=2", "loader.scale=numpy", "data.batch_size=8"]
    assert applied(own, ["loader=skimage"]) == ["loader=skimage", "loader.scale=numpy", "data.batch_size=8"]
    own = ["data.batch_size=8", "engine.persistent_workers=false"]
    changed = ["data.batch_size=8", "engine=spdl", "engine.num_workers=2"]
    assert applied(own, ["engine=spdl", "engine.num_workers=2"]) == changed


def test_a_deletion_takes_out_what_was_added() -> None:
    own = ["+callbacks.slow._target_=Slow", "+callbacks.slow.seconds=1", "seed=1"]
    assert applied(own, ["~callbacks.slow"]) == ["seed=1"]
    assert applied(["seed=1"], ["~callbacks.stop"]) == ["seed=1", "~callbacks.stop"]


@pytest.mark.parametrize("path", ["/plain/path-1.0", "/with space/a", "/it's", "/a=b,c{d}", "/größe (1)", "/x~y:$HOME"])
def test_hydra_reads_a_quoted_path(path: str) -> None:
    assert OverridesParser.create().parse_override(f"hydra.run.dir={quoted(Path(path))}").value() == path
