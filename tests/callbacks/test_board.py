"""TensorBoard's own tabs, read back from the event files of a real logger."""

import signal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.callbacks.figures import pixels
from strobe.callbacks.tables import OperatorTables
from strobe.callbacks.timeline import draw
from strobe.callbacks.trace import TraceProfiler
from strobe.callbacks.trace_writer import TraceWriter
from strobe.process.signals import AskedToEnd
from support.fitting import fit


def board(tmp_path: Path) -> TensorBoardLogger:
    return TensorBoardLogger(tmp_path, name="", version="tensorboard")


def shown(tmp_path: Path) -> EventAccumulator:
    return EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0, "tensors": 0}).Reload()


def test_what_a_profile_found_reaches_its_tabs_at_once(tmp_path: Path) -> None:
    class Look(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            tags = shown(tmp_path).Tags()
            seen.append((len(tags["tensors"]), len(tags["images"])))

    seen: list[tuple[int, int]] = []
    profiler = TraceProfiler(tmp_path / "traces", active=2)
    fit(profiler, Look(), logger=[CSVLogger(tmp_path), board(tmp_path)], log_every_n_steps=1)
    assert seen == [(1, 0)] * 4 + [(2, 1)] * 2
    events = shown(tmp_path)
    texts = {tag: events.Tensors(f"trace/{tag}/text_summary")[0] for tag in ("schedule", "operators")}
    schedule, operators = (text.tensor_proto.string_val[0].decode() for text in texts.values())
    assert schedule == "wait 1, warm up 1, record 2; cycles: 1; record_shapes"
    assert operators.startswith("Operators by self CPU time, over 1 cycle and 2 steps: 15 of ")
    (image,) = events.Images("trace/timeline")
    assert [image.step, *(text.step for text in texts.values())] == [4, 0, 4]
    picture = pixels(draw(profiler.steps))
    read = Image.open(BytesIO(image.encoded_image_string))
    assert read.size == picture.shape[1::-1]
    assert read.tobytes() == picture.tobytes()


def test_a_run_that_ends_while_its_trace_is_written_draws_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def end(*_: Any, **__: Any) -> None:
        raise AskedToEnd(signal.SIGTERM)

    monkeypatch.setattr(TraceWriter, "write", end)
    profiler = TraceProfiler(tmp_path / "traces", active=2)
    with pytest.raises(AskedToEnd):
        fit(profiler, logger=board(tmp_path), log_every_n_steps=1)
    assert [step.number for step in profiler.steps] == [2, 3]
    assert "The profiler failed" not in caplog.text
    assert shown(tmp_path).Tags()["images"] == []


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated")
def test_markdown_is_a_table_in_tensorboard() -> None:
    from tensorboard.plugin_util import markdown_to_safe_html

    tables = OperatorTables()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("a|b `c`\n<i>d</i> " + "e" * 90):
        torch.ones(2).sum()
    tables.add(profiler.profiler)
    html = markdown_to_safe_html(tables.markdown(rows=3))
    assert (html.count("<th>"), html.count("<tr>"), html.count("<td")) == (6, 4, 18)
    assert f"<code>a/b 'c' &lt;i&gt;d&lt;/i&gt; {'e' * 24}..." in html
    assert "<p>Operators by self CPU time, over 1 cycle: 3 of " in html


def test_other_loggers_and_ranks_show_nothing(tmp_path: Path) -> None:
    class OfTheSecondRank(SingleDeviceStrategy):
        is_global_zero = False

    second: dict[str, Any] = {"logger": board(tmp_path), "strategy": OfTheSecondRank("cpu")}
    for number, settings in enumerate(({"logger": CSVLogger(tmp_path)}, second)):
        profiler = TraceProfiler(tmp_path / f"traces{number}", active=2)
        fit(profiler, log_every_n_steps=1, **settings)
        assert profiler.traces
    assert "trace" not in str(shown(tmp_path).Tags())
