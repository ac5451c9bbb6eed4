"""A real sweep's directory in a real TensorBoard: a run's tabs, every cell in HParams, two side by side in Diff."""

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from strobe.callbacks.columns import PHASES
from strobe.records.run import Record
from strobe.report.board import COLUMNS, METRICS, results
from support.readers import Plugin, ask, board
from support.runs import Ended, Train

FAILED, SKIMAGE, NATIVE = "0-stop", "1-loader-skimage+batch_size-4", "2-loader-native+batch_size-8"
PROFILED = ("test=true", "profiler=trace", "profiler.repeat=1", "profiler.active=3", "trainer.limit_train_batches=8")
MEASURED = ("ceilings=true", "ceilings_seconds=0.05")
ALL = ["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_UNKNOWN", "STATUS_RUNNING"]
FAILS = "+callbacks.stop={_target_: lightning.pytorch.callbacks.EarlyStopping, monitor: nothing}"
OWN = ("data.batch_size=8", "model.lr_scaling=linear", "model.channels_last=true")


def test_a_sweep_is_compared_in_tensorboard(train: Train, finished_run: Ended, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    # Read first, as TensorBoard takes all columns from one run, it must know the others' too.
    summaries = {FAILED: train("data.batch_size=4", FAILS, name=f"sweep/{FAILED}").summary}
    shutil.copytree(finished_run.directory, sweep / SKIMAGE)
    summaries[SKIMAGE] = finished_run.summary
    summaries[NATIVE] = train("loader=native", *OWN, *PROFILED, *MEASURED, name=f"sweep/{NATIVE}").summary
    assert [summary["status"] for summary in summaries.values()] == ["failed", "completed", "completed"]
    (sweep / "3-not-begun").mkdir()
    with board(sweep) as address:
        hold_tabs_against(address, summaries[SKIMAGE])
        hold_rows_against(address, summaries)
        hold_traces_against(address)


def hold_tabs_against(address: str, summary: dict[str, Any]) -> None:
    """The run's scalars, pictures, texts and traces."""
    run, tabs = f"{SKIMAGE}/tensorboard", f"{address}/data/plugin"
    scalars = ask(f"{tabs}/scalars/tags", lambda tags: "val/accuracy" in tags.get(run, {}))[run]
    assert {"train/loss", "train/step_loss", "val/loss"} <= set(scalars)
    assert not any(tag.startswith("test/") for tag in scalars)  # charts of one dot
    assert {f"step_seconds/{phase}" for phase in (*PHASES, "total")} <= set(scalars)
    images = ask(f"{tabs}/images/tags", lambda tags: len(tags.get(run, {})) == 5)[run]
    assert set(images) == {"first_batch", "test_confusion", "trace/timeline", "strobe/step", "trace/newest"}
    texts = ask(f"{tabs}/text/tags", lambda tags: len(tags.get(run, {})) >= 4)[run]
    told = {tag.removesuffix("/text_summary") for tag in texts}
    assert told >= {"trace/schedule", "trace/operators", "strobe/verdict", "trace/newest"}
    assert min(told) == "strobe/verdict"  # TensorBoard sorts by name
    plugin = Plugin(address, run)
    (worker,) = plugin.workers()
    assert f"{worker}." in summary["traces"][0]
    assert [plugin.steps(worker, span) for span in plugin.spans(worker)] == [["2", "3", "4"], ["7", "8", "9"]]
    assert plugin.shares(worker, "1")["DataLoader"] > 0


def hold_rows_against(address: str, summaries: dict[str, dict[str, Any]]) -> None:
    """The HParams tab has a row of each cell, with what its record says."""
    shown, groups = hparams_tab(address, len(summaries))
    assert {info["name"] for info in shown["hparamInfos"]} == COLUMNS.keys()
    assert [info["name"]["tag"] for info in shown["metricInfos"]] == list(METRICS)
    rows = {group["name"].removesuffix("/tensorboard"): group for group in groups}
    assert rows.keys() == summaries.keys()
    assert rows[FAILED]["sessions"][0]["status"] == "STATUS_FAILURE"
    assert {group["sessions"][0]["status"] for name, group in rows.items() if name != FAILED} == {"STATUS_SUCCESS"}

    common = {"data": "sample", "engine": "torch", "model": "resnet18", "accelerator": "cpu", "precision": "32-true"}
    common |= {"num_workers": 0, "devices": 1, "optimizer": "adam", "compile": False, "seed": 42}
    for name, own in {
        FAILED: {"profiler": "none", "batch_size": 4, "learning_rate": 1e-3},
        SKIMAGE: {"loader": "skimage", "batch_size": 4, "learning_rate": 1e-3, "channels_last": False},
        NATIVE: {"loader": "native", "batch_size": 8, "learning_rate": 1e-3 * 8 / 32, "channels_last": True},
    }.items():
        assert rows[name]["hparams"].items() >= (common | own).items()

    for name in (SKIMAGE, NATIVE):
        summary = summaries[name]
        told = {value["name"]["tag"]: value["value"] for value in rows[name]["metricValues"]}
        assert told == pytest.approx({tag: summary["metrics"][tag] for tag in METRICS}, rel=1e-6)
        found = {key: value for key, value in results(Record(summary)).items() if value is not None}
        assert {"images/s", "memory, MB"} <= found.keys()
        assert ("loader alone" in found) == (name == NATIVE)  # of the other no ceilings were measured
        assert {key: rows[name]["hparams"].get(key) for key in found} == pytest.approx(found, rel=1e-6)


def hparams_tab(address: str, cells: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tab's columns and its rows."""
    query = {
        "experimentName": "",
        "allowedStatuses": ALL,
        "colParams": [{"metric": {"group": "", "tag": tag}} for tag in METRICS],
        "startIndex": 0,
        "sliceSize": 99,
    }
    tab = f"{address}/data/plugin/hparams"
    answer = ask(
        f"{tab}/session_groups?{urlencode({'request': json.dumps(query)})}",
        lambda found: len(found.get("sessionGroups", [])) == cells,
    )
    return ask(f"{tab}/experiment?{urlencode({'request': '{}'})}"), answer["sessionGroups"]


def hold_traces_against(address: str) -> None:
    """Diff takes one cell as the baseline and another beside it, and shows the parts of both cells' steps."""
    plugins = [Plugin(address, f"{name}/tensorboard") for name in (SKIMAGE, NATIVE)]
    (before,), (after,) = [plugin.workers() for plugin in plugins]
    runs = ask(f"{address}/data/plugin/pytorch_profiler/runs")["runs"]
    assert runs == [plugin.run for plugin in plugins]  # the failed one was not profiled
    query = {"run": runs[0], "worker": before, "span": "1", "exp_run": runs[1], "exp_worker": after, "exp_span": "1"}
    root = ask(f"{address}/data/plugin/pytorch_profiler/diff?{urlencode(query)}")
    for side, own in (("left", "aten::stack"), ("right", "strobe::read_tiles")):
        own_to, other = root[side], root["right" if side == "left" else "left"]
        assert own_to["duration"] > 0
        names = {operator["name"] for operator in own_to["aggs"]}
        assert {own, "aten::convolution", "aten::convolution_backward"} <= names
        assert own not in {operator["name"] for operator in other["aggs"]}
    steps = [part for part in root["children"] if part["left"]["name"].startswith("Optimizer.step")]
    assert len(steps) == 3  # active steps
    loading = [part for part in root["children"] if part["left"]["name"].startswith("enumerate(DataLoader)")]
    assert len(loading) == 3
    assert all(part["left"]["name"] == part["right"]["name"] for part in steps + loading)
