"""TensorBoard's own tabs, read back from the event files of a real logger."""

import csv
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.profiler import ProfilerActivity, profile, record_function

from strobe.callbacks.board import show_operators, show_schedule, show_timeline, step_scalars
from strobe.callbacks.figures import pixels
from strobe.callbacks.ranges import Interval, Step
from strobe.callbacks.tables import OperatorTables
from strobe.callbacks.timeline import draw
from support.fitting import fit, trainer_with

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

STEPS = [Step(0, 0, 9, (Interval("forward", 0, 4),))]


def board(tmp_path: Path) -> TensorBoardLogger:
    return TensorBoardLogger(tmp_path, name="", version="tensorboard")


def shown(tmp_path: Path) -> EventAccumulator:
    return EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0, "tensors": 0}).Reload()


class AtTheEnd(Callback):
    """Calls a function when training has ended."""

    def __init__(self, show: Callable[[Trainer], None]) -> None:
        self.show = show

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        self.show(trainer)


def test_text_and_pictures_reach_their_tabs(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(2).sum()
    tables = OperatorTables()
    tables.add(profiler.profiler)
    picture = pixels(draw(STEPS))

    def show(trainer: Trainer) -> None:
        show_schedule(trainer, "| active |\n|--:|\n| 3 |\n")
        show_operators(trainer, tables)
        show_timeline(trainer, STEPS)

    fit(AtTheEnd(show), logger=[CSVLogger(tmp_path), board(tmp_path)], log_every_n_steps=1)
    events = shown(tmp_path)
    texts = {tag: events.Tensors(f"{tag}/text_summary")[0] for tag in ("profiler/schedule", "profiler/operators")}
    written = {tag: (text.step, text.tensor_proto.string_val[0].decode()) for tag, text in texts.items()}
    assert written == {
        "profiler/schedule": (6, "| active |\n|--:|\n| 3 |\n"),
        "profiler/operators": (6, tables.markdown()),
    }
    (image,) = events.Images("profiler/timeline")
    read = Image.open(BytesIO(image.encoded_image_string))
    assert (image.step, read.size) == (6, picture.shape[1::-1])
    assert read.tobytes() == picture.tobytes()


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated")
def test_markdown_is_a_table_in_tensorboard() -> None:
    from tensorboard.plugin_util import markdown_to_safe_html

    tables = OperatorTables()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("a|b `c`\n<i>d</i> " + "e" * 90):
        torch.ones(2).sum()
    tables.add(profiler.profiler)
    html = markdown_to_safe_html(tables.markdown(rows=3))
    assert (html.count("<th>"), html.count("<tr>"), html.count("<td")) == (6, 4, 18)
    assert f"<code>a/b 'c' &lt;i&gt;d&lt;/i&gt; {'e' * 60}..." in html
    assert "<p>Operators by self CPU time, over 1 cycle: 3 of " in html


def test_what_was_shown_is_on_disk_at_once(tmp_path: Path) -> None:
    trainer = trainer_with(logger=board(tmp_path))
    show_schedule(trainer, "one")
    assert shown(tmp_path).Tensors("profiler/schedule/text_summary")
    show_timeline(trainer, STEPS)
    assert shown(tmp_path).Images("profiler/timeline")
    trainer.logger.finalize("success")


@pytest.mark.parametrize("logger", [False, CSVLogger], ids=["none", "another"])
def test_other_loggers_are_left_alone(tmp_path: Path, logger: type[Logger] | bool) -> None:
    trainer = trainer_with(logger=logger and CSVLogger(tmp_path))
    show_schedule(trainer, "one")
    show_operators(trainer, OperatorTables())
    show_timeline(trainer, STEPS)
    assert not [*tmp_path.rglob("*")]


def test_other_ranks_show_nothing(tmp_path: Path) -> None:
    class OfTheSecondRank(SingleDeviceStrategy):
        is_global_zero = False

    trainer = trainer_with(logger=board(tmp_path), strategy=OfTheSecondRank("cpu"))
    show_schedule(trainer, "one")
    show_timeline(trainer, STEPS)
    assert not [*tmp_path.rglob("*")]


def test_step_scalars_reach_every_logger(tmp_path: Path) -> None:
    trainer = trainer_with(logger=[CSVLogger(tmp_path, name="", version="csv"), board(tmp_path)])
    for step in (3, 4):
        step_scalars(trainer, {"data_wait": 0.25, "forward": 0.5 * step}, step)
    for logger in trainer.loggers:
        logger.finalize("success")
    expected = {"data_wait": [0.25, 0.25], "forward": [1.5, 2.0], "total": [1.75, 2.25]}
    events = shown(tmp_path)
    for name, values in expected.items():
        assert [(e.step, e.value) for e in events.Scalars(f"step_seconds/{name}")] == list(
            zip((3, 4), values, strict=True)
        )
    with (tmp_path / "csv" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["step_seconds/total"]) for row in rows] == expected["total"]
    assert [row["step"] for row in rows] == ["3", "4"]
