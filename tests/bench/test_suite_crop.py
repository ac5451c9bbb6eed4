"""Suite ``crop``: all decoders give the same crops, steps train on the same batches, sentences fit the figures."""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from strobe.bench.harness.declare import Done, Input, Request, Suite, Trial
from strobe.bench.inputs import find_photos
from strobe.bench.suites.crop import cells
from strobe.bench.suites.crop import suite as crop
from strobe.bench.suites.crop.cells import ACTIVE, COLOURS, OFFSETS, Prepared, prepare
from strobe.bench.suites.crop.decoders import CROP, DECODERS, Places, decode_batches, measured
from strobe.bench.suites.crop.suite import DECODE, PARTS, PIXELS, STEP, WHOLE
from strobe.callbacks.tracefile import read_trace
from strobe.errors import ConfigError, DataError
from strobe.present.parts import Table
from support.composing import bench_config
from support.photo_files import photograph
from support.refusals import refusal
from support.suite_parts import declared
from support.suite_records import record_of

DECODED = ["decode, one at a time, {}, 1 thread", "step, 1, {}, 1 thread"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of three photos of different sizes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, (height, width) in enumerate([(300, 340), (256, 400), (271, 259)]):
        photograph(height, width, number).save(folder / f"{number}.jpg", quality=90, subsampling=2)
    return folder


def found(root: Path, scratch: Path) -> Input:
    given = (f"data.root={root}",)
    suite: Suite = crop.declare(bench_config("suite=crop", *given))
    return suite.find(Request(bench_config("suite=crop", *given), "image_folder", given), scratch)


def trial_of(found: Input, folder: Path, number: int = 0) -> Trial:
    return Trial(folder / "cells" / "step", number, (), found, folder)


def test_every_decoder_is_measured_alone_and_in_a_step() -> None:
    cells = declared("crop").cells
    alone, steps = ([pattern.format(name) for name in DECODERS] for pattern in DECODED)
    together = "decode, 32 at a time, native, 1 thread"
    assert [cell.name for cell in cells] == [*alone, together, *steps]
    assert [cell.against for cell in cells] == [None, *[alone[0]] * 4, None, *[steps[0]] * 3]


def test_decoders_and_workers_can_be_chosen() -> None:
    suite = declared("crop", "suite.decoders=[torchvision,native]", "suite.workers=[1,2]")
    steps = [cell for cell in suite.cells if cell.table == "step"]
    assert [(cell.row, cell.column) for cell in steps] == [(r, c) for r in "12" for c in ("torchvision", "native")]
    assert steps[3].against == "step, 2, torchvision, 1 thread"
    assert [cell.make.keywords["traced"] for cell in steps] == [True, True, False, False]


def test_only_photos_that_a_crop_fits_into_are_used(photos: Path, tmp_path: Path) -> None:
    photograph(255, 400).save(photos / "small.jpg")
    photograph(300, 300).convert("L").save(photos / "grey.jpg")
    chosen = found(photos, tmp_path / "scratch")
    assert [Path(path).name for path in chosen.facts["paths"]] == ["0.jpg", "1.jpg", "2.jpg"]
    assert chosen.facts["sizes"] == [(300, 340), (256, 400), (271, 259)]
    assert chosen.title.startswith("3 of 5 photos, 0.10 million pixels in the median; steps train on the ")
    (photos / "1.jpg").write_bytes((photos / "1.jpg").read_bytes()[:3000])
    with pytest.raises(DataError, match=r"1\.jpg is not a whole photo .*; remove it"):
        found(photos, tmp_path / "again")
    for name in "012":
        (photos / f"{name}.jpg").unlink()
    with pytest.raises(DataError, match="none of the 2 photos is a JPEG in colours of 256x256 pixels or more; name"):
        found(photos, tmp_path / "none")


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_gives_the_same_crop(name: str, photos: Path) -> None:
    path = photos / "0.jpg"
    expected = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[:, 14 : 14 + CROP, 30 : 30 + CROP]
    try:
        decode = DECODERS[name]()
    except DataError as error:
        pytest.skip(str(error))
    made = decode(path.read_bytes(), 14, 30)
    if name == "spdl":  # FFmpeg's pixels differ a little
        assert made.shape == expected.shape
        assert (made.int() - expected.int()).abs().float().mean() < 6
    else:
        assert torch.equal(made, expected)


def test_crops_alone(photos: Path, tmp_path: Path) -> None:
    chosen = found(photos, tmp_path)
    places = Places(chosen.facts["paths"], chosen.facts["sizes"])
    drawn = list(islice(places.drawn(), 6))
    assert sorted(photo for photo, _, _ in drawn) == sorted(2 * places.photos)  # each as often as the others
    assert len({(top, left) for _, top, left in drawn}) > 3
    with cells.decode(trial_of(chosen, tmp_path), decoder="pil", batch=None) as work:
        assert work.repeat() == Done(1, figures={PIXELS: 102_000})
    pil = DECODERS["pil"]()
    try:
        batch = decode_batches(places, 6)()
    except DataError as error:
        pytest.skip(str(error))
    assert torch.equal(batch, torch.stack([pil(*place) for place in drawn]))
    with cells.decode(trial_of(chosen, tmp_path), decoder="native", batch=4) as work:
        assert work.repeat() == Done(4, figures={PIXELS: 102_000})


def test_a_photo_that_the_native_decoder_refuses_is_not_counted(tmp_path: Path) -> None:
    photograph(300, 300).convert("CMYK").save(tmp_path / "print.jpg")
    try:
        decode = decode_batches(Places([str(tmp_path / "print.jpg")], [(300, 300)]), 2)
    except DataError as error:
        pytest.skip(str(error))
    with pytest.raises(DataError, match="does not read one of the photos; remove"):
        decode()


def test_steps_train_on_workers_crops_and_the_first_trial_is_traced(photos: Path, tmp_path: Path) -> None:
    chosen = found(photos, tmp_path / "scratch")
    chosen.facts["device"] = "cpu"
    with cells.train(trial_of(chosen, tmp_path), decoder="pil", workers=1, batch=2, traced=True) as work:
        assert work.warm_up is not None
        work.warm_up()
        done = work.repeat()
    assert isinstance(done, Done)
    assert done.images == 2
    assert (done.seconds or 0) > 0
    assert set(done.figures) == {*PARTS, WHOLE, PIXELS}
    assert all(seconds > 0 for seconds in done.figures.values())
    assert sum(done.figures[name] for name in PARTS) <= done.figures[WHOLE]
    (path,) = (tmp_path / "tensorboard" / "pil").glob("*.pt.trace.json.gz")
    events = [event["name"] for event in read_trace(path)["traceEvents"] if event.get("cat") == "user_annotation"]
    assert (events.count(DECODE), events.count(STEP)) == (2 * ACTIVE, ACTIVE)
    with cells.train(trial_of(chosen, tmp_path, 1), decoder="pil", workers=1, batch=2, traced=True) as work:
        later = work.repeat()
    assert isinstance(later, Done)
    assert set(later.figures) == {PIXELS}
    assert list((tmp_path / "tensorboard" / "pil").iterdir()) == [path]


def test_batches_are_the_same_whichever_decoder_and_differ_between_workers(photos: Path) -> None:
    paths = [str(photos / f"{number}.jpg") for number in range(3)]
    places = Places(paths, [(300, 340), (256, 400), (271, 259)])
    batches = {}
    for name in ("pil", "torchvision"):
        batches[name] = next(iter(DataLoader(Prepared(places, DECODERS[name]()), 4)))
    assert batches["pil"].shape == (4, 3, CROP, CROP)
    assert batches["pil"].dtype == torch.float32
    assert torch.equal(batches["pil"], batches["torchvision"])
    two = DataLoader(Prepared(places, DECODERS["pil"]()), 4, num_workers=2, multiprocessing_context="fork")
    first, second = islice(two, 2)
    assert torch.equal(first, batches["pil"])
    assert not torch.equal(first, second)


def test_the_published_pipeline_masks_and_changes_colours() -> None:
    image = torch.full((3, 64, 64), 200, dtype=torch.uint8)
    made = prepare(image, np.random.default_rng(0))
    grey = (COLOURS.sum(1) * 200 + OFFSETS.flatten()) / 255
    masked = (made - OFFSETS / 255).abs().amax(0) < 1e-6
    free = (made - grey.view(3, 1, 1)).abs().amax(0) < 1e-6
    assert bool((masked ^ free).all())
    assert 0.7 < masked.float().mean() < 0.82  # 1 - 0.75 ** 5: itself or one of four neighbours
    assert image.unique().tolist() == [200]


def test_decoding_only_the_crop_is_held_against_each_of_the_others() -> None:
    suite = declared("crop")
    rates: dict[str, float | str] = {
        DECODED[0].format("pil"): 500,
        DECODED[0].format("torchvision"): 700,
        DECODED[0].format("spdl"): "DataError: FFmpeg is missing",
        DECODED[0].format("native"): 1750,
        DECODED[1].format("pil"): 200,
        DECODED[1].format("native"): 400,
    }
    alone, step, other = crop.conclude(record_of(suite, rates))
    assert re.fullmatch(r"Decoding only the crop is 3\.\d+ \([^)]+\) times as fast as pil\.", alone)
    assert re.match(
        r"Training with 1 worker is (1\.9|2\.0)\d* \([^)]+\) times as fast as with pil: a step takes ", step
    )
    assert re.fullmatch(r"Decoding only the crop is 2\.\d+ \([^)]+\) times as fast as torchvision\.", other)
    assert crop.conclude(record_of(suite, dict.fromkeys(rates, "it broke"))) == []


def test_the_page_shows_the_parts_of_a_step(tmp_path: Path) -> None:
    suite = declared("crop")
    record = record_of(suite, {DECODED[1].format(name): 300.0 for name in ("pil", "native")})
    assert crop.sections(record, tmp_path) == []
    for cell in record["cells"]:
        if cell["visits"]:
            seconds = {**dict.fromkeys(PARTS, 0.01), DECODE: 0.04 if cell["column"] == "pil" else 0.02, WHOLE: 0.1}
            cell["figures"] = {name: {"median": value, "low": value, "high": value} for name, value in seconds.items()}
    (section,) = crop.sections(record, tmp_path)
    first, second = section.text.splitlines()
    assert first.startswith(
        "pil: decode, crop 40.0, random mask 10.0, colours 10.0, scale 10.0, training 10.0, the rest 20"
    )
    assert second.startswith("native: decode, crop 20.0,")
    table = section.parts[-1]
    assert isinstance(table, Table)
    assert [row[:2] for row in table.rows] == [["pil", "40.0"], ["native", "20.0"]]


def test_a_gpu_is_used_unless_the_user_says_otherwise(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def device(accelerator: str) -> str:
        given = (f"data.root={photos}", f"trainer.accelerator={accelerator}")
        return crop._find(Request(bench_config("suite=crop", *given), "image_folder", given), tmp_path).facts["device"]

    def has(found: torch.device | None) -> None:
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: found)

    for kind in ("cuda", "xpu"):
        has(torch.device(kind))
        assert [device(accelerator) for accelerator in ("auto", "gpu", kind, "cpu")] == [kind] * 3 + ["cpu"]
    has(None)
    with pytest.raises(ConfigError, match=r"trainer.accelerator=gpu needs a GPU, and this machine has none; give cpu"):
        device("gpu")


def asked(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Request:
    monkeypatch.delenv("STROBE_DATA", raising=False)
    return Request(bench_config("suite=crop", *(given.lstrip("+") for given in overrides)), "image_folder", overrides)


def test_one_photo_is_enough_and_nothing_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photograph(60, 80).save(tmp_path / "one.jpg")
    found = find_photos(asked(monkeypatch, f"++data.root={tmp_path}"), tmp_path / "scratch")
    assert found.facts["paths"] == [str(tmp_path / "one.jpg")]
    assert found.title == "1 photo"
    assert not (tmp_path / "scratch").exists()


def test_what_is_missing_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    given = asked(monkeypatch, f"data.root={tmp_path}")
    assert refusal(lambda: find_photos(given, tmp_path), DataError).startswith(f"data.root={tmp_path} holds no JPEG")
    given = asked(monkeypatch)
    monkeypatch.setenv("STROBE_DATA", str(tmp_path))
    assert refusal(lambda: find_photos(given, tmp_path), DataError).startswith(f"STROBE_DATA={tmp_path}: its folder")


def test_a_photo_that_is_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photograph(300, 400).save(tmp_path / "large.jpg")
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 100_000)
    assert "large.jpg is too large" in refusal(lambda: measured(str(tmp_path / "large.jpg")), DataError)
