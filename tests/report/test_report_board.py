"""The verdict in TensorBoard's own tabs, read back from event files that real loggers wrote; and the step's picture."""

import shlex
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from matplotlib.colors import to_hex
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader

from strobe.callbacks.columns import PHASES
from strobe.callbacks.figures import PHASE_COLOURS, pixels
from strobe.present.raster import contrast, ink_on
from strobe.records.run import Record
from strobe.report.board import COLUMNS, RESULTS, hyperparameters, markdown, show_verdict, step_picture
from strobe.report.page import render
from strobe.report.wording import advice
from support.pages import Page, complete

FOUND = dict(zip(RESULTS, (0.5, 1463.0, 0.453, 3230.0, 8120.0, 4100.0, 2300.0), strict=True))
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
    logged = {"train/loss", "test/accuracy", "epoch"}
    assert {*read.Tags()["scalars"]} == logged  # no chart of a single dot
    assert hyperparameters(Record(record())).items() >= FOUND.items()  # in HParams, where a sweep's runs are compared
    assert [*COLUMNS][: len(RESULTS)] == [*RESULTS]
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
    assert "<p>Images/s: 1,463.</p>" in html
    assert "loader alone 3,230, model alone 8,120 images/s; this run's 1,463 is 45% of the loader alone.</p>" in html
    assert "<h4>The loader is the limit. Predicted: loader=memory -&gt; 2.5x (2.3 to 2.6)</h4>" in html
    assert "<h4>my_slow_callback &lt;b&gt;</h4>" in html
    assert "With no waiting at all, training would be up to 2.6x as fast.</p>" in html
    assert "<p>Call it * less | often.</p>" in html
    code = html.partition("<pre><code>")[2].partition("</code></pre>")[0].strip()
    assert code.startswith("python train.py ")
    assert "*c_d_e*" in code
    assert "loader=memory" in code.split()
    assert "\n" not in code


def test_a_long_command_stands_in_lines_that_a_shell_joins() -> None:
    long = Record(record(overrides=[f"group.option_{number}='a value'" for number in range(9)]))
    block = [line for line in markdown(long).splitlines() if line.startswith("    ")]
    assert len(block) > 2
    assert max(map(len, block)) < 100
    whole = advice(long)[0]["command"]
    assert shlex.split("\n".join(block).replace(" \\\n", " ")) == shlex.split(whole)


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("median", "low", "high"))
    old = record(images_per_second=nothing, step_seconds={"total": None}, ceilings={"loader": None, "model": 9.0})
    for key in ("verdict", "findings", "efficiency", "environment", "memory", "metrics"):
        del old[key]
    del old["overall_images_per_second"]
    assert not {*RESULTS[:3]} & hyperparameters(Record(old)).keys()
    show_verdict(quiet(folder(tmp_path / "none")), old | {"ceilings": None, "status": "failed"})
    tags = events(tmp_path / "none").Tags()
    assert not [*tags["scalars"], *tags["images"]]
    assert f"{TEXT}/text_summary" not in tags["tensors"]


class OfTheSecondRank(SingleDeviceStrategy):
    is_global_zero = False


def test_another_logger_and_another_rank_show_no_verdict(tmp_path: Path) -> None:
    for trainer in (quiet(False), quiet(CSVLogger(tmp_path)), quiet(folder(tmp_path), strategy=OfTheSecondRank("cpu"))):
        show_verdict(trainer, record())
    assert not [*tmp_path.rglob("*")]


def timed(**changes: Any) -> dict[str, Any]:
    return complete() | {
        "overall_images_per_second": 250.0,
        "images_per_second": {"median": 255.0, "low": 250.0, "high": 260.0},
        "step_seconds": {"total": 0.1, "data_wait": 0.06, "forward": 0.02, "backward": 0.018, "optimizer": 0.002},
        "ceilings": {"loader": 400.0, "model": 1000.0, "joint": 300.0, "intervals": {"loader": [390, 405]}},
        **changes,
    }


def drawn(**changes: Any) -> Any:
    figure = step_picture(timed(**changes))
    assert figure is not None
    return figure


def bars(axes: Any) -> dict[str, tuple[float, float]]:
    """Where a bar of a colour begins and ends."""
    return {to_hex(bar.get_facecolor()).upper(): (bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches}


def test_phases_follow_each_other_by_their_seconds() -> None:
    step = drawn(step_seconds=dict(reversed(timed()["step_seconds"].items()))).axes[0]
    edges = {"data_wait": (0, 0.06), "forward": (0.06, 0.08), "backward": (0.08, 0.098), "optimizer": (0.098, 0.1)}
    assert bars(step) == {"#F4F4F4": (0, 0.1)} | {PHASE_COLOURS[name]: pytest.approx(at) for name, at in edges.items()}
    assert [text.get_text() for text in step.texts[:2]] == ["data wait", "60 ms, 60%"]
    (legend,) = drawn().legends
    assert [text.get_text() for text in legend.get_texts()] == ["optimizer 2 ms, 2%"]  # too narrow for its name


def test_rates_are_on_one_scale_and_one_not_measured_is_left_out() -> None:
    rates = drawn().axes[1]
    ends = {PHASE_COLOURS["data_wait"]: 400, PHASE_COLOURS["forward"]: 1000, "#B8B8B8": 300, "#222222": 250}
    assert bars(rates) == {colour: (0, end) for colour, end in ends.items()}
    assert [text.get_text() for text in rates.texts] == ["400 (62% used)", "1,000 (25% used)", "300 (83% used)", "250"]
    assert (390, 405) in {tuple(line.get_xdata()) for line in rates.lines}
    stored = drawn(ceilings={"storage": {"rate": 500.0}, "loader": 400.0}).axes[1]
    assert [text.get_text() for text in stored.texts] == ["500 (50% used)", "400 (62% used)", "250"]
    left = bars(drawn(ceilings={"loader": 400.0, "model": None}).axes[1])
    assert left.keys() == {PHASE_COLOURS["data_wait"], "#222222"}
    wrong = drawn(ceilings={"loader": 400.0, "model": 81.0}).axes[1]  # which the run is three times as fast as
    assert [text.get_text() for text in wrong.texts] == ["400", "81", "250"]


def test_with_a_far_ceiling_the_scale_is_logarithmic_as_on_the_page() -> None:
    far = complete() | {"overall_images_per_second": 250.0, "ceilings": {"loader": 90000.0, "model": 300.0}}
    figure = drawn(ceilings=far["ceilings"])
    rates = figure.axes[1]
    assert rates.get_xscale() == "log"
    start, end = rates.get_xlim()
    assert 0 < start < 250
    assert end > 90000
    assert sorted(edge for _, edge in bars(rates).values()) == pytest.approx([250.0, 300.0, 90000.0])
    assert "Images per second, logarithmic scale" in [text.get_text() for text in figure.texts]
    assert "The scale is logarithmic." in Page(render(Record(far))).text
    assert drawn(ceilings={"loader": 400.0, "model": 300.0}).axes[1].get_xscale() == "linear"


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "$Q$" * 100},
        {"ceilings": {"loader": 123456789.0, "model": 12345678.0, "joint": 0.01}},
        {"ceilings": {"model": 0.004}, "overall_images_per_second": 0.003},
        {"images_per_second": dict.fromkeys(("median", "low", "high")), "overall_images_per_second": None},
        {"step_seconds": dict.fromkeys(("total", *PHASES))},
        {"step_seconds": {"total": 1e3, "a_phase_of_a_later_version_" * 20: 1.0} | dict.fromkeys(PHASES, 1.0)},
        {"step_seconds": {"total": 1e-5, "data_wait": 2e-5}},
    ],
    ids=["long", "large", "small", "no-rate", "no-step", "phases", "more-than-all"],
)
def test_odd_records_are_drawn(changes: dict[str, Any]) -> None:
    height, width, _ = pixels(drawn(**changes)).shape
    assert 200 < height < 700
    assert 1000 < width < 1700


def test_an_old_record_has_its_step_and_a_failed_one_nothing() -> None:
    old = timed(ceilings={"loader": None, "model": None})
    assert step_picture(old) is not None
    del old["ceilings"]
    assert step_picture(old) is not None
    assert step_picture(old | {"step_seconds": dict.fromkeys(("total", *PHASES))}) is None
    assert step_picture(old | {"step_seconds": None}) is None


def test_words_on_the_phases_colours_can_be_read() -> None:
    for colour in PHASE_COLOURS.values():
        assert contrast(ink_on(colour), colour) > 4.5
