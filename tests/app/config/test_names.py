"""What a run's directory is called."""

import os
import shlex
import subprocess
import sys
import time

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from strobe.app.config.register import MAX_NAME, run_name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], ""),
        (["loader=skimage"], "-loader-skimage"),
        (["loader=skimage", "trainer.devices=1"], "-loader-skimage+devices-1"),
        (["data.bands=[3,2,1]"], "-bands-_3_2_1"),
        (["model.lr=1e-3", "+trainer.plugins=null"], "-lr-1e-3+plugins-null"),
        (["data.root=/home/someone/data", "ckpt_path=last", "hydra.run.dir=/tmp/x"], ""),
        (["data.root=/home/someone/data", "seed=7"], "-seed-7"),
    ],
    ids=" ".join,
)
def test_a_run_is_named_after_its_overrides(overrides: list[str], name: str) -> None:
    assert run_name(overrides) == name


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.batch_size=32", "engine.num_workers=8"],
        ["data.bands=[3, 2, 1]"],
        ["trainer.max_time={days: 1, hours: 2}"],
        ["model.weights='größe (1).pt'"],
        ["model.weights=$HOME:a=b,c;d&e|f.pt"],
        ["++trainer.limit_train_batches=0.5", "~trainer.max_time", "seed=-1"],
        ['a=\\`ls\\`!*?#~%@:"\t\n'],
        [f"model.weights={'long' * 100}"],
    ],
    ids=lambda overrides: overrides[0][:30],
)
def test_a_path_in_a_run_needs_no_quotes(overrides: list[str]) -> None:
    name = run_name(overrides)
    path = f"outputs/runs/2026-11-20/12-33-00{name}/checkpoints/last.ckpt"
    assert shlex.quote(path) == path
    parsed = OverridesParser.create().parse_override(f"ckpt_path={path}")
    assert parsed.key_or_group == "ckpt_path"
    assert parsed.value() == path
    assert 1 < len(name) <= MAX_NAME


def test_processes_of_one_torchrun_agree_on_the_start() -> None:
    rank = f"{sys.executable} -c \"from strobe.app.config.register import start_time; print(start_time('%s'))\""
    parent = f"{rank}; sleep 1.1; {rank}; true"  # without a last word the shell would become its last command
    before = time.time()
    launched = {
        same: subprocess.Popen(["sh", "-c", parent], env=os.environ | given, stdout=subprocess.PIPE, text=True)
        for same, given in {True: {"TORCHELASTIC_RUN_ID": "none"}, False: {}}.items()
    }
    for same, shell in launched.items():
        first, second = map(int, shell.communicate(timeout=60)[0].split())
        assert (first == second) is same
        assert before - 2 <= first <= second <= time.time() + 2  # the kernel knows its own start to a second
