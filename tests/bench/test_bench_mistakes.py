"""Mistakes that ``strobe bench`` refuses in a sentence, before anything is measured."""

import re
from pathlib import Path

import pytest

from strobe.app.config.checks import check
from strobe.app.config.register import register
from strobe.bench.command import declared, own_overrides, settings_of, show
from strobe.bench.harness.baseline import wanted
from strobe.bench.harness.declare import Request
from strobe.bench.steady import ready
from strobe.errors import ConfigError, StrobeError
from support.composing import bench_config
from support.photo_files import photograph
from support.refusals import refusal
from support.suite_parts import trial_of


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.bench.suites.workers.suite._has_gpu", lambda: False)
    monkeypatch.setattr("strobe.bench.suites.training.has_gpu", lambda: False)
    monkeypatch.delenv("STROBE_DATA", raising=False)


def prepare(*given: str) -> None:
    """All that the command does before it looks for its input."""
    cfg = bench_config(*given)
    check(cfg)
    suite = declared(cfg)
    own_overrides(suite)
    wanted(cfg.baseline, cfg.fail_if_slower, suite.name, settings_of(cfg, suite).rounds)


MISTAKES = {
    "loading": [
        ("loader=native", r"loader=native is what the cells of suite=loading differ in; .*suite\.loaders=\[NAME"),
        ("data.batch_size=3", r"suite\.batch_sizes=\[N,\.\.\.\]"),
        ("suite.loaders=[moon]", r"suite\.loaders=.*moon does not read this data; loaders that do: native"),
        ("suite.loaders=[pil]", "pil does not read this data; loaders that do: native"),
        ("suite.loaders=[]", r"suite\.loaders=\[\] must name one or more, each once; such as"),
        ("suite.loaders=[native,native]", r"suite\.loaders=\[native,native\] must name one or more, each once"),
        ("suite.batch_sizes=[2,2]", "would measure a cell twice; give each value of its lists once"),
        ('suite.loaders=["native threads=2"]', "'native threads=2' may set keys of its loader only; give native"),
        ("suite.batch_sizes=[0]", r"suite\.batch_sizes=\[0\] .*at least 1"),
        ("suite.threads=[-1]", r"suite\.threads=\[-1\] .*at least 1"),
        ("suite.batches=0", r"suite\.batches=0 .*at least 1"),
        ("suite.tables=[crop_policies]", "'crop_policies'.*: none of them is measured on data of the form tiles"),
        ("baseline=nowhere", "baseline=nowhere is not a file"),
        ("fail_if_slower=5%", "fail_if_slower=5% needs an earlier result"),
    ],
    "crop": [
        ("suite.decoders=[native,jpeg]", r"suite\.decoders=.*jpeg.* is not a choice; choose one of pil, torch"),
        ("suite.decoders=[]", r"suite\.decoders=\[\] is empty"),
        ("suite.workers=[2,0]", r"suite\.workers=\[2, 0\] is out of range; it must be at least 1"),
        ("suite.batch_size=0", r"suite\.batch_size=0 is out of range; it must be at least 1"),
    ],
    "workers": [
        ("suite.workers=[2,0]", r"suite\.workers=\[2, 0\] is out of range; it must be at least 1"),
        ("suite.workers=[2,2]", "would measure a cell twice"),
        ("suite.workers=[]", r"suite\.workers=\[\] is empty"),
        ("suite.stages=[crop]", r"suite\.stages=.*crop.* choose one of resize, batch, normalise, transfer"),
        ("suite.stages=[transfer]", r"suite\.stages=\[transfer\]: transfer needs a GPU, and there is none; leave it"),
        ("suite.pipelines=[dali]", r"suite\.pipelines does not know 'dali'; choose from torch, torch_tuned, spdl"),
        ("suite.pipelines=[]", r"suite\.pipelines=\[\] must name one or more"),
        ("suite.pipelines=[spdl,spdl]", r"suite\.pipelines=\[spdl,spdl\] must name one or more, each once"),
        ('suite.pipelines=["spdl size=3"]', "'spdl size=3' cannot be configured, as ours can"),
        (
            'suite.pipelines=["strobe engine.num_workers=3"]',
            r"sets engine\.num_workers, which all pipelines must",
        ),
        ('suite.pipelines=["strobe threads=2"]', "sets threads, which all pipelines must share"),
        ('suite.pipelines=["strobe data.root=x"]', r"sets data\.root, which all pipelines must share"),
        ('suite.pipelines=["strobe +data.framing=resize"]', r"sets data\.framing, which all pipelines must share"),
    ],
    "convolution": [
        ("suite.implementations=[magic]", r"magic in suite\.implementations is unknown; choose from four loops, "),
        ("suite.sizes=[256] suite.implementations=[im2col]", r"suite\.sizes=\[256\].* give a side of 128 or less"),
        ("suite.implementations=[]", r"suite\.implementations=\[\] leaves nothing to measure"),
        ("suite.sizes=[]", r"suite\.sizes=\[\] is empty"),
        ("suite.sizes=[0]", r"suite\.sizes=\[0\]"),
        ("suite.kernel=0", r"suite\.kernel=0"),
        *((given, rf"^{given} .*suite=convolution") for given in ("threads=2", "data.batch_size=8", "loader=native")),
    ],
    "storage": [
        ("suite.photos=255", r"suite\.photos=255 is less than the 256 photos.*give 256 or more"),
    ],
    "training": [
        *((f"suite.{key}", f"{key} is out of range") for key in ("workers=0", "large_batch=1", "batch_size=1")),
        ("suite.devices=[gpu]", r"suite\.devices=\['gpu'\]: there is no GPU.*suite\.devices=\[cpu\]"),
        ("suite.devices=[tpu]", r"suite\.devices=.*tpu.* is not a choice; choose one of cpu, gpu"),
        ("suite.batch_size=8 suite.large_batch=8", r"suite\.batch_size=8 is as large as suite\.large_batch=8"),
    ],
    "overhead": [("profiler=trace", "profiler=trace is what the cells of suite=overhead differ in")],
}


@pytest.mark.parametrize(
    ("suite", "given", "said"), [(suite, *mistake) for suite, mistakes in MISTAKES.items() for mistake in mistakes]
)
def test_a_mistake_is_told_in_a_sentence(suite: str, given: str, said: str) -> None:
    overrides = given.split() if given.count("suite.") > 1 else [given]
    assert re.search(said, refusal(lambda: prepare(f"suite={suite}", *overrides), ConfigError))


@pytest.mark.parametrize("suite", ["convolution", "crop", "storage", "workers"])
def test_a_suite_of_photos_takes_no_other_data(suite: str) -> None:
    refused = refusal(lambda: prepare(f"suite={suite}", "data=cifar10"), ConfigError)
    assert refused.startswith(f"suite={suite} measures photos, and data has the form array; leave data=... out")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["suite.threads=[2]"], "suite.threads=[2] is a key of one suite; give suite=NAME too"),
        (["suite=loading", "suite.moon=2"], "moon"),
        (["suite=loading", "suite.loaders=[moon]"], "suite.loaders"),
        (["suite=loading", "rounds=0"], "rounds=0 is out of range"),
    ],
)
def test_so_it_is_by_the_list(given: list[str], words: str) -> None:
    register()
    assert words in refusal(lambda: show(given), StrobeError)


TILES = ("data.root={tiles}", "data.tiles_per_class=10")
PHOTOS = ("data.root={photos}", "data.batch_size=4", "data.size=32")
TRAINED = ("quick=true", "threads=1", "suite.devices=[cpu]", "suite.workers=1")
FOUND = {  # by what the input, or a training on it, cannot be
    ("loading", "sample", TILES): [
        (
            'suite.loaders=["native loader.thread=2"]',
            r"^suite\.loaders: 'native loader\.thread=2' cannot be meas",
        ),
        ('suite.loaders=["native loader.threads=0"]', r"loader\.threads=0 is out of range"),
    ],
    ("workers", "image_folder", PHOTOS): [
        ('suite.pipelines=["strobe loader.dct=1"]', r"^suite\.pipelines: .* cannot be measured: .*loader\.dct"),
        ('suite.pipelines=["strobe loader=tifffile"]', "loader=tifffile does not read"),
        ('suite.pipelines=["strobe engine.prefetch_factor=0"]', r"engine\.prefetch_factor=0 is out of range"),
    ],
    ("engines", "sample", TILES): [
        ("suite.loaders=[pil]", r"^suite\.loaders: 'pil' cannot be measured: "),
        ("data.batch_size=81", "batches of 81 are more than the 80 images"),
    ],
    ("overhead", "cifar10", ()): [
        ("data.batch_size=181", "batches of 181 are more than the 180 images"),
        ("trainer.max_steps=5", r"^trainer\.max_steps=5 "),
    ],
    ("training", "cifar10", TRAINED): [
        ('suite.best=["engin=resident"]', r"best known, with suite\.best=.*, cannot be composed: .*engin"),
        ('suite.best=["data.batch_size=-1"]', r"data\.batch_size=-1 is out of range"),
        ("suite.large_batch=512", r"batches of 512 are more than the 180 images.*suite\.large_batch=N"),
        ('suite.best=["trainer.max_steps=5"]', r"^trainer\.max_steps=5 does not fit .* turn_seconds=S"),
    ],
}


@pytest.mark.parametrize(("where", "given", "said"), [(key, *each) for key, some in FOUND.items() for each in some])
def test_what_cannot_be_measured_is_refused_with_its_input(
    sample_root: Path, tmp_path: Path, where: tuple[str, str, tuple[str, ...]], given: str, said: str
) -> None:
    suite, data, more = where
    overrides = [one.format(tiles=sample_root, photos=tmp_path / "photos") for one in more]
    if data == "image_folder":
        (tmp_path / "photos").mkdir()
        photograph(60, 80).save(tmp_path / "photos" / "one.jpg")
    elif data == "cifar10":
        overrides += trial_of(tmp_path).overrides
    cfg = bench_config(f"suite={suite}", *overrides, given)
    own = tuple(one for one in (*overrides, given) if not one.startswith(("suite.", "quick=")))
    asked = Request(cfg, data, own)
    assert re.search(said, refusal(lambda: declared(cfg).find(asked, tmp_path / "scratch"), ConfigError))


@pytest.mark.parametrize(
    ("given", "said", "plain"),
    [
        ("trainer.fast_dev_run=true", "trainer.fast_dev_run=True does not fit", False),
        ("trainer.limit_train_batches=4", "trainer.limit_train_batches=4 does not fit", False),
        ("trainer.max_time=00:00:00:01", "trainer.max_time=00:00:00:01 does not fit", False),
        ("profiler=trace", "profiler._target_=strobe.callbacks.TraceProfiler does not fit", False),
        ("trainer.precision=16-mixed", "", True),
        ("trainer.accumulate_grad_batches=2", "", True),
        ("trainer.gradient_clip_val=1.0", "", True),
        ("model.scheduler=one_cycle", "", True),
        ("model.lr_scaling=linear", "", True),
        ("trainer.devices=2", "", True),
    ],
)
def test_a_training_must_be_endless_and_like_the_plain_one(given: str, said: str, plain: bool) -> None:
    refused = refusal(lambda: ready(["data=cifar10", given], plain=plain), ConfigError)
    assert refused.startswith(said or f"{given} ")
