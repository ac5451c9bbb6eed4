"""What a run says at its end: ceilings, findings, the report; also when something is in the way."""

import html
import random
from typing import Any

import numpy as np
import pytest
import torch

from strobe.app.run.ceilings import Ceilings
from strobe.diagnose.symptoms import too_low
from strobe.records.run import Record
from strobe.report import wording
from support.runs import ALL, CHECKPOINTS, Ended, Train
from support.watched import ALONE

MEASURED = ("trainer.limit_train_batches=8", "ceilings=true", "ceilings_seconds=0.1", "loader=rasterio")


def shown(ended: Ended) -> str:
    return html.unescape((ended.directory / "report.html").read_text())


def test_a_run_ends_with_a_verdict(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.measure.contention.between", lambda *_: dict(ALONE))
    ended = train(*MEASURED)
    assert ended.code == 0, ended.output
    summary = ended.summary
    ceilings = summary["ceilings"]
    for side in ("loader", "model"):
        low, high = ceilings["intervals"][side]
        assert 0 < low <= ceilings[side] <= high
    assert ceilings["joint"] < min(ceilings["loader"], ceilings["model"])  # one process loads and computes in turn
    assert ceilings["alternatives"]
    smallest = min(ceilings["loader"], ceilings["model"], ceilings["joint"])
    share = min(1.0, summary["overall_images_per_second"] / smallest)
    assert summary["efficiency"] == (None if too_low(Record(summary)) else pytest.approx(share))
    assert summary["findings"]
    text = " ".join(ended.output.split())
    for sentence in (wording.verdict(Record(summary))[0], summary["findings"][0]["title"]):
        assert sentence in text
        assert sentence in shown(ended).replace("\u00a0", " ")
    assert "report.html" in ended.output


def test_each_callback_is_named(train: Train) -> None:
    slow = "+callbacks.slow._target_=strobe.validation.injected_faults.SlowCallback"
    ended = train("trainer.limit_train_batches=8", slow, "+callbacks.slow.seconds=0.4")
    assert ended.code == 0, ended.output
    (first, *_) = ended.summary["callbacks"]
    assert first["name"] == "SlowCallback"
    assert first["kind"] == "callback"
    assert first["mean"] == pytest.approx(ended.summary["step_seconds"]["callbacks"], rel=0.2)
    assert first["mean"] >= 0.4
    (finding,) = [one for one in ended.summary["findings"] if one["cause"] == "callback"]  # another may be the machine
    assert finding["overrides"] == ["~callbacks.slow"]


@pytest.mark.parametrize("place", ["measure", "alternative"])
def test_ctrl_c_ends_the_measuring_and_not_the_run(train: Train, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ceilings, place, interrupted)
    ended = train(*MEASURED)
    assert ended.code == 130
    assert ended.summary["status"] == "completed"
    assert (ended.summary["ceilings"]["model"] is None) == (place == "measure")
    assert "interrupted" in ended.output
    assert wording.verdict(Record(ended.summary))[0] in " ".join(ended.output.split())


def test_a_run_that_fails_has_a_report_too(train: Train) -> None:
    stopping = "+callbacks.stop._target_=lightning.pytorch.callbacks.EarlyStopping"
    ended = train(stopping, "+callbacks.stop.monitor=nothing", "trainer.limit_train_batches=8")
    assert ended.code == 2
    assert ended.summary["status"] == "failed"
    assert ended.summary["ceilings"] is None
    assert "callbacks.stop.monitor=nothing is not a metric of this run" in shown(ended)
    assert "until then" in ended.summary["verdict"]


def test_an_error_of_the_diagnosis_leaves_the_record(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ArithmeticError("the rule's own")

    monkeypatch.setattr("strobe.diagnose.rank.conclude", broken)
    ended = train()
    assert ended.code == 0
    assert ended.summary["status"] == "completed"
    assert "No report" in ended.output
    assert "the rule's own" in ended.output


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_ends_the_same_with_and_without(train: Train, workers: int) -> None:
    """Weights, the optimizer's state, metrics, and every generator that a run draws from."""
    states, records, checkpoints = [], [], []
    for ceilings in ("true", "false"):
        given = f"ceilings={ceilings}", "ceilings_seconds=0.1", f"engine.num_workers={workers}"
        ended = train(*given, "trainer.max_epochs=2", CHECKPOINTS, ALL, name=ceilings)
        assert ended.code == 0, ended.output
        states.append((torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()))
        records.append(ended.summary)
        checkpoints.append(
            [
                torch.load(ended.directory / "checkpoints" / f"{name}.ckpt", weights_only=True)
                for name in ("best", "last")
            ]
        )
    measured, not_measured = records
    assert measured["ceilings"]["loader"] > 0
    assert measured["ceilings"]["model"] > 0
    assert not_measured["ceilings"] is None
    assert states[0] == states[1]
    assert measured["metrics"] == not_measured["metrics"]
    for first, second in zip(*checkpoints, strict=True):
        assert first["state_dict"].keys() == second["state_dict"].keys()
        assert all(torch.equal(value, second["state_dict"][key]) for key, value in first["state_dict"].items())
        for key, moments in first["optimizer_states"][0]["state"].items():
            other = second["optimizer_states"][0]["state"][key]
            assert all(torch.equal(torch.as_tensor(moments[name]), torch.as_tensor(other[name])) for name in moments)
