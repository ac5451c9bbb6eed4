"""The verdict in TensorBoard's own tabs, read back from event files that real loggers wrote."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader

from strobe.callbacks.figures import pixels
from strobe.report.board import METRICS, show_verdict
from strobe.report.step_picture import step_picture
from support.pages import complete

SCALARS = {"images_per_second": 3180.0, "efficiency": 0.985, "ceilings/loader": 3230.0, "ceilings/model": 8120.0}
SCALARS |= {"memory/rss_peak_mb": 4100.0, "memory/device_peak_mb": 2300.0}
TEXT, PICTURE = "strobe/verdict", "strobe/step"


class Model(LightningModule):
    """A linear layer that logs its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch).sum()
        self.log("train/loss", loss)
        return loss

    def test_step(self, batch: torch.Tensor) -> None:
        self.log("test/accuracy", 0.75)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def quiet(logger: Any, **settings: Any) -> Trainer:
    off = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    return Trainer(accelerator="cpu", max_epochs=1, logger=logger, log_every_n_steps=1, **settings | off)


def folder(path: Path) -> TensorBoardLogger:
    return TensorBoardLogger(path, name="", version="tensorboard", default_hp_metric=False)


def events(path: Path) -> EventAccumulator:
    return EventAccumulator(str(path / "tensorboard"), size_guidance={"images": 0, "tensors": 0}).Reload()


def text_of(read: EventAccumulator) -> str:
    (text,) = read.Tensors(f"{TEXT}/text_summary")
    return str(text.tensor_proto.string_val[0].decode())


def record(**changes: Any) -> dict[str, Any]:
    return complete() | {"verdict": "61% of each step waits for data_wait."} | changes


def test_what_comes_after_training_and_testing_stands_beside_their_scalars(tmp_path: Path) -> None:
    trainer, data = quiet([CSVLogger(tmp_path), folder(tmp_path)]), DataLoader(torch.ones(12, 4), batch_size=4)
    trainer.fit(model := Model(), data)
    trainer.test(model, data, verbose=False)
    writer = trainer.loggers[1].experiment
    assert writer.file_writer is None  # Lightning has closed it
    before = set((tmp_path / "tensorboard").iterdir())

    show_verdict(trainer, record())
    assert writer.file_writer is None
    (added,) = set((tmp_path / "tensorboard").iterdir()) - before
    assert "tfevents" in added.name
    read = events(tmp_path)
    scalars = {name: [(e.step, e.value) for e in read.Scalars(name)] for name in read.Tags()["scalars"]}
    assert {"train/loss", "test/accuracy"} <= scalars.keys()
    assert {name: scalars[name] for name in SCALARS} == {
        name: [(3, pytest.approx(value))] for name, value in SCALARS.items()
    }
    assert {*METRICS} >= SCALARS.keys()  # of HParams, where a sweep's runs are compared
    (image,) = read.Images(PICTURE)
    figure = step_picture(record())
    assert figure is not None
    assert image.step == 3
    assert Image.open(BytesIO(image.encoded_image_string)).tobytes() == pixels(figure).tobytes()
    assert "**61% of each step" in text_of(read)


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated")
def test_the_text_reads_well_in_tensorboard(tmp_path: Path) -> None:
    from tensorboard.plugin_util import markdown_to_safe_html

    found = record()["findings"][0]
    by_hand = found | {"title": "my_slow_callback <b>", "overrides": [], "advice": "Call it * less | often."}
    trainer = quiet(folder(tmp_path))
    show_verdict(trainer, record(findings=[found, by_hand], overrides=["data.root='/a b/*c_d_e*'"]))
    html = markdown_to_safe_html(text_of(events(tmp_path)))
    assert "<strong>61% of each step waits for data_wait.</strong>" in html
    assert "<p>Ceilings: loader 3,230, model 8,120 images/s; efficiency 98% of the loader ceiling.</p>" in html
    assert "<h4>The loader is the limit. Predicted: 2.5x (2.3 to 2.6)</h4>" in html
    assert "<h4>my_slow_callback &lt;b&gt;. Predicted: up to 2.6x" in html
    assert "<p>Call it * less | often.</p>" in html
    code = html.partition("<pre><code>")[2].partition("</code></pre>")[0].strip()
    assert code.startswith("python train.py ")
    assert "*c_d_e*" in code
    assert "loader=memory" in code.split()
    assert "\n" not in code


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("median", "low", "high"))
    old = record(images_per_second=nothing, step_seconds={"total": None}, ceilings={"loader": None, "model": 9.0})
    for key in ("verdict", "findings", "efficiency", "environment", "memory"):
        del old[key]
    show_verdict(quiet(folder(tmp_path / "old")), old)
    assert events(tmp_path / "old").Tags()["scalars"] == ["ceilings/model"]
    show_verdict(quiet(folder(tmp_path / "none")), old | {"ceilings": None, "status": "failed"})
    tags = events(tmp_path / "none").Tags()
    assert not [*tags["scalars"], *tags["images"]]
    assert f"{TEXT}/text_summary" not in tags["tensors"]


class OfTheSecondRank(SingleDeviceStrategy):
    is_global_zero = False


def test_another_logger_and_another_rank_show_no_verdict(tmp_path: Path) -> None:
    for trainer in (
        quiet(False),
        quiet(CSVLogger(tmp_path)),
        quiet(folder(tmp_path), strategy=OfTheSecondRank("cpu")),
    ):
        show_verdict(trainer, record())
    assert not [*tmp_path.rglob("*")]
