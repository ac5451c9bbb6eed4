"""Each mistake gets one clear line that names the key or file, the value and the remedy, and no traceback."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from strobe.app.build.checkpoint import require_fitting
from strobe.app.config.checks import Preflight, check, without_effect, without_hydra
from strobe.app.config.compose import composed
from strobe.app.config.entry import command
from strobe.app.config.register import composing
from strobe.app.config.roots import check_root
from strobe.app.model.resnet import build_resnet18
from strobe.errors import ConfigError
from strobe.process.locks import alone_in
from support.cifar10_files import generated
from support.composing import configured
from support.files import names, plant
from support.refusals import refusal
from support.runs import CHECKPOINTS, Ended, Train


@pytest.fixture
def own_tiles(sample_root: Path, tmp_path: Path) -> Iterator[Path]:
    """A small set that a test may damage."""
    folder = tmp_path / "own"
    for kind in sorted((sample_root / "tiles" / "seed42-10").glob("*/"))[:3]:
        shutil.copytree(kind, folder / kind.name)
    yield folder
    shutil.rmtree(folder)


def refused(ended: Ended, *words: str) -> str:
    begun = (ended.directory / "summary.json").is_file()
    failed = ended.summary["error"]["type"] == "DataError" if begun else "cannot be made (" in ended.output
    assert ended.code == (1 if failed else 2), ended.output
    assert "Traceback" not in ended.output
    for word in words:
        assert word in ended.output
    return ended.output


MISTAKES = [  # in the configuration, and what is said of each before a run begins
    ("data.batchsize=3", ["data.batchsize is not a key; did you mean data.batch_size"]),
    ("--loader", ["--loader is not an option; give loader=VALUE"]),
    ("--batch-size=64", ["--batch-size=64 is not an option; did you mean data.batch_size"]),
    ("hydra.run.dir=", ["hydra.run.dir= has no value; give KEY=VALUE"]),
    ("=5", ["=5 has no key; give KEY=VALUE"]),
    ("data=5", ["data=5 is not a choice; choose one of cifar10, "]),
    ("loader=null", ["loader=null is not a choice; choose one of memory, "]),
    ("model=[true]", ["model=[true] is not a choice; choose one of resnet18, "]),
    ("hydra/launcher=5", ["hydra/launcher=5 is not a choice; choose one of its names"]),
    ("/x=5", ["/x=5 cannot be read; give KEY=VALUE"]),
    ("sweep.repeat=3", ["sweep.repeat is not a key; did you mean sweep.repeats?"]),
    ("lodaer=native", ["lodaer is not a key; did you mean loader?"]),
    ("lr=0.1", ["lr is not a key; did you mean model.lr?"]),
    ("LR=0.1", ["LR is not a key; did you mean model.lr?"]),
    ("learning_rate=0.1", ["did you mean model.lr?"]),
    ("model.learning_rate=0.1", ["model.learning_rate is not a key; did you mean model.lr?"]),
    ("bs=4", ["did you mean data.batch_size?"]),
    ("gpus=1", ["did you mean trainer.devices?"]),
    ("dataset=cifar10", ["dataset is not a key; did you mean data?"]),
    ("image_size=64", ["did you mean data.size? Only data=image_folder has it"]),
    ("arch=resnet50", ["arch is not a key; did you mean model?"]),
    ("name=resnet50", ["did you mean model.name? Only model=timm and model=torchvision have it"]),
    ("augmentation=false", ["did you mean data.augment?"]),
    ("output_dir=x", ["did you mean hydra.run.dir?"]),
    ("resume=true", ["did you mean ckpt_path"]),
    ("output_subdir=x", ["output_subdir is not a key; --help lists the keys"]),
    ("+lr=0.1", ["Nothing reads +lr=0.1; did you mean model.lr?"]),
    ("+model.dropout=0.5", ["Nothing reads +model.dropout=0.5"]),
    ("epochs=3", ["epochs is not a key; did you mean trainer.max_epochs"]),
    ("trainer.max_epoch=3", ["trainer.max_epoch is not a key; did you mean trainer.max_epochs"]),
    ("+trainer.max_epoch=3", ["trainer.max_epoch=3 is not an argument", "did you mean trainer.max_epochs?"]),
    ("+trainer.callbacks=[]", ["trainer.callbacks is set by each run itself"]),
    ("trainer.limit_predict_batches=1", ["not a key; +trainer.limit_predict_batches=VALUE gives this argument"]),
    ("callbacks.x=1", ["callbacks.x is not a key; +callbacks.NAME._target_=CLASS adds a callback"]),
    ("suite=loading", ["suite is not a key; strobe bench suite=NAME runs a benchmark suite"]),
    (
        "model=torchvision model.name=resnet5",
        ["model.name=resnet5 is not a classification model", "did you mean resnet50"],
    ),
    (
        "data=eurosat data.root=hf://datasets/x/y",
        ["data.root=hf://datasets/x/y is not an address", "s3://, s3a://, gs://"],
    ),
    ("data=eurosat data.root=r2://b/x", ["give s3://b/x and data.endpoint=https://ACCOUNT.r2.cloudflarestorage.com"]),
    ("data=eurosat data.root=s3://", ["data.root=s3:// is not an address of storage; give one such as s3://BUCKET"]),
    ("data=eurosat data.root=s3:/b/x", ["data.root=s3:/b/x is not a folder; did you mean s3://b/x?"]),
    (
        "data=eurosat data.endpoint=http://h data.root=.",
        ["data.endpoint=http://h", "give data.root=s3://BUCKET/FOLDER"],
    ),
    (
        "data=eurosat data.cache=c data.root=. loader=packed loader.shards=s3://b/x",
        ["data.cache=c is for data in storage"],
    ),
    ("data=eurosat data.cache=c data.root=.", ["data.cache=c is for data in storage"]),
    ("~loader", ["~loader deletes what every run needs"]),
    ("+callbacks.x=1", ["+callbacks.x=1: callbacks.x names no class; +callbacks.x._target_=CLASS gives it one"]),
    ("+callbacks.x.foo=1", ["+callbacks.x.foo=1: callbacks.x names no class; +callbacks.x._target_=CLASS gives"]),
    ("~callbacks.x", ["callbacks.x is not a key"]),
    ("+callbacks.x._target_=no.such.Thing", ["callbacks.x._target_=no.such.Thing", "(there is no module no); name"]),
    ("+logger.x._target_=json.Thing", ["logger.x._target_=json.Thing cannot be imported (json has no Thing); name"]),
    ("model._target_=json.JSONDecoder.x", ["type object 'JSONDecoder' has no attribute 'x'); name a class as MODULE."]),
    ("+callbacks.x._target_=json.JSONDecoder +callbacks.x.y=1", ["unexpected keyword argument 'y'; it takes object_"]),
    ("logger._target_=json.JSONDecoder", ["cannot be made: got an unexpected keyword argument"]),
    ("+data.batch_size=3", ["+data.batch_size is a key already; give data.batch_size=VALUE"]),
    ("loader={a:1}", ["loader is a group; give loader=CHOICE"]),
    ("loader=skimage,native", ["has several values; sweep over them with -m"]),
    ("data.batch_size", ["data.batch_size cannot be read; give KEY=VALUE"]),
    ("data.batch_size=${nope}", ["data.batch_size: Interpolation key 'nope' not found"]),
    ("data=eurosatt", ["data=eurosatt is not a choice; choose one of cifar10, eurosat, image_folder, sample"]),
    ("experiment=nothing", ["experiment=nothing is not a choice", "eurosat_13band"]),
    ("data.batch_size=many", ["data.batch_size=many does not fit; give a whole number"]),
    ("model.compile=maybe", ["model.compile=maybe does not fit; give true or false"]),
    ("data.root=null", ["data.root=null does not fit; give a value other than null"]),
    ("trainer.max_epochs=soon", ["trainer.max_epochs=soon has a wrong type; give a whole number or null"]),
    ("trainer.limit_val_batches=few", ["trainer.limit_val_batches=few has a wrong type; give a number or null"]),
    ("trainer.fast_dev_run=maybe", ["trainer.fast_dev_run=maybe has a wrong type; give a whole number or true or"]),
    ("trainer.accelerator=tpu", ["trainer.accelerator=tpu needs torch_xla; install it, or give trainer=cpu"]),
    ("trainer.devices=0", ["trainer.devices=0 is out of range; it must be at least 1"]),
    ("trainer=cpu trainer.devices=9999", ["trainer.devices=9999 on a CPU of", "give at most"]),
    ("trainer.limit_train_batches=-3", ["trainer.limit_train_batches=-3 is out of range", "or a share up to 1"]),
    ("trainer.limit_val_batches=1.5", ["trainer.limit_val_batches=1.5 is out of range"]),
    ("+logger.foo=1", ["logger.foo=1 is not an argument of Lightning's TensorBoardLogger; it takes name, version"]),
    ("data.root=/nowhere", ["data.root=/nowhere would get the generated tiles of data=sample", "data=image_folder"]),
    ("data.root=conf", ["data.root=conf would get the generated tiles"]),
    ("trainer.max_time=abc", ["trainer.max_time=abc is not a duration; give days:hours:minutes:seconds"]),
    ("trainer.accumulate_grad_batches=0", ["trainer.accumulate_grad_batches=0", "at least 1"]),
    ("trainer.precision=bf17", ["trainer.precision=bf17 is not a choice; choose one of 32-true, 16-mixed"]),
    ("data=image_folder data.root=/nowhere", ["data.root=/nowhere is not a folder; give the folder that holds"]),
    ("data=eurosat data.root=/nowhere", ["data.download=true downloads EuroSAT (2.1 GB, from https", "data=sample"]),
    ("data=cifar10 data.root=/nowhere", ["data.download=true downloads CIFAR-10 (170 MB", "data=sample"]),
    ("loader=packed loader.directory=s3://b/packs", ["loader.directory=s3://b/packs is an address", "loader.shards="]),
    ("data.batch_size=0", ["data.batch_size=0", "at least 1"]),
    ("data.batch_size=-4", ["data.batch_size=-4", "at least 1"]),
    ("data.val_batch_size=0", ["data.val_batch_size=0", "at least 1"]),
    ("engine.num_workers=-1", ["engine.num_workers=-1", "at least 0"]),
    ("data.train_fraction=1.0", ["data.train_fraction=1.0", "greater than 0 and less than 1"]),
    ("model.lr=0", ["model.lr=0", "greater than 0"]),
    ("model.lr=inf", ["model.lr=inf is out of range; it must be greater than 0 and finite"]),
    ("model.optimizer=lion", ["model.optimizer=lion", "adam, adamw, sgd"]),
    ("loader.scale=gpu", ["loader.scale=gpu", "device, numpy, torch"]),
    ("profiler.active=0", ["profiler.active=0", "at least 1"]),
    ("profiler=trace profiler.stop_after=true profiler.max_mb=0", ["profiler.max_mb=0.0", "greater than 0"]),
    ("profiler=trace profiler.stop_after=true profiler.keep=0", ["profiler.keep=0", "at least 1"]),
    (
        "profiler=trace profiler.stop_after=true profiler.repeat=0",
        ["profiler.stop_after=true does not fit profiler.repeat=0"],
    ),
    ("profiler=python profiler.kind=guess", ["profiler.kind=guess is not a choice", "one of events, sampling"]),
    ("profiler=python profiler.steps=-1", ["profiler.steps=-1", "at least 0"]),
    ("profiler=python profiler.interval=0", ["profiler.interval=0.0", "greater than 0"]),
    ("profiler=memory profiler.active=0", ["profiler.active=0", "at least 1"]),
    ("profiler=memory profiler.kind=events", ["profiler.kind is not a key; only profiler=python has it"]),
    ("loader=skimage loader.threads=2", ["loader.threads is not a key; only loader=native has it"]),
    ("loader=skimage +loader.threads=2", ["Nothing reads +loader.threads=2; only loader=native has it"]),
    ("engine=spdl engine.persistent_workers=false", ["engine.persistent_workers is not a key; only engine=torch has"]),
    ("profiler=flame", ["profiler=flame is not a choice; choose one of memory, none, python, trace"]),
    ("seed=-1", ["seed=-1", "at least 0"]),
    ("seed=99999999999", ["seed=99999999999", "at most"]),
    ("data.bands=[true]", ["data.bands=[True]", "list"]),
    ("data=cifar10 data.batch_size=1", ["data.batch_size=1", "model.stem=cifar"]),
    ("data.bands=red", ["data.bands=red", "rgb, all"]),
    ("data.bands=[]", ["data.bands=[]", "list"]),
    ("data.bands=[1,1]", ["data.bands=[1, 1]", "different"]),
    ("data.bands=[-1]", ["data.bands=[-1]", "from 0"]),
    ("data=cifar10 loader=rasterio", ["loader=rasterio", "data=cifar10", "memory"]),
    ("data=eurosat loader=memory", ["loader=memory", "data=eurosat", "rasterio, skimage, tifffile"]),
    ("model.stem=cifar model.weights=imagenet", ["model.weights=imagenet", "model.stem=cifar"]),
    (
        "model.fused=true trainer.precision=bf16-mixed +trainer.gradient_clip_val=1",
        ["model.fused=true", "trainer.gradient_clip_val=1", "trainer.precision=bf16-mixed"],
    ),
    ("ckpt_path=nowhere.ckpt", ["ckpt_path=nowhere.ckpt", "ckpt_path=last"]),
    ("threads=9999", ["threads=9999", "at most"]),
    ("loader=native loader.threads=9999", ["loader.threads=9999", "at most"]),
    ("engine.num_workers=99999", ["engine.num_workers=99999", "at most"]),
    ("data=image_folder data.size=4", ["data.size=4", "at least 8 and at most 4096"]),
    ("data=image_folder data.framing=crop", ["data.framing=crop", "resize, random_crop, random_resized_crop"]),
    ("data=image_folder data.size=32 data.batch_size=1", ["data.batch_size=1", "model.stem=cifar"]),
    ("data=image_folder loader=skimage", ["loader=skimage", "data=image_folder", "pil", "torchvision"]),
    ("data=image_folder engine=resident", ["engine=resident", "random_resized_crop", "data.framing=resize"]),
    (
        "data=image_folder loader=packed data.framing=random_crop",
        ["loader=packed", "data.framing=random_crop", "data.framing=resize"],
    ),
    ("engine=spdl engine.ordered=false trainer.deterministic=true", ["engine.ordered=false", "ordered=true"]),
]


@pytest.mark.parametrize(("overrides", "words"), MISTAKES)
def test_configuration(
    overrides: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = overrides.split()
    monkeypatch.setattr("sys.argv", ["train.py", *given])
    with pytest.raises(SystemExit) as stop, command("config"):
        Preflight().on_run_start(configured("config", *given))
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("defaults: [image_folder]\nsiz: 48", "data/mine.yaml: data.siz is not a key; did you mean data.size?"),
        ("a: [1", 'data/mine.yaml", line 1, column 6; mend this YAML'),
    ],
)
def test_a_configuration_of_ones_own(
    content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text(content)
    monkeypatch.setattr("sys.argv", ["train.py"])
    with pytest.raises(SystemExit) as stop, command("config"):
        configured("config", f"hydra.searchpath=[file://{tmp_path}]", "data=mine")
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["cat/a.jpg", "dog/notes.txt", "dog/.b.jpg"], "/dog holds no .jpg, .jpeg, .png file; add photos or remove"),
        (["train/cat/a.jpg", "train/dog/b.PNG", "val/cat/c.jpg", "val/dog/d"], "/val/dog holds no .jpg, .jpeg, .png"),
        (["cat/a.jpg"], " holds one class, cat; put the photos of at least two classes into a folder for each"),
        (["cat/a.jpg", "dog/old/b.jpg"], ""),
        (["train/cat/a.jpg", "test/cat/a.jpg"], ""),  # which loading refuses
        (["cat/a.jpg", *(f"dog/{number}" for number in range(3))], ""),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, list) else None,
)
def test_a_class_without_photos_is_told_before_anything_is_imported(
    files: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strobe.app.storage.local.MOST", 2)
    plant(tmp_path, dict.fromkeys(files, b""))
    cfg = configured("config", "data=image_folder", f"data.root={tmp_path}")
    assert said in (refusal(lambda: check_root(cfg)) if said else str(check_root(cfg)))


@pytest.mark.parametrize("data", ["eurosat", "image_folder"])
def test_an_address_in_place_of_a_folder_needs_no_other_loader(data: str) -> None:
    check(without_hydra(configured("config", f"data={data}", "data.root=s3://b/x", "engine=litdata")))


SECRET = "swordfish"


@pytest.mark.parametrize(
    "overrides",
    [
        f"data=eurosat data.root=s3://key:{SECRET}@b/x",
        f"data=eurosat data.root='s3://b/x?X-Amz-Signature={SECRET}'",
        f"data=cifar10 data.root=s3://key:{SECRET}@b/x",
        f"data=eurosat data.root=s3://b/x data.endpoint=http://key:{SECRET}@host:80",
        f"data=eurosat data.root=. data.endpoint=http://key:{SECRET}@host:80",
        f"loader=packed loader.shards=s3://key:{SECRET}@b/x",
        f"loader=packed loader.directory=s3://key:{SECRET}@b/x",
        f"data=eurosat data.root=s3://b/x loader=native data.cache=s3://key:{SECRET}@b/x",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(overrides: str) -> None:
    key = next(part.partition("=")[0] for part in overrides.split() if SECRET in part)
    told = refusal(lambda: check(without_hydra(configured("config", *overrides.split()))), ConfigError)
    assert told.startswith(f"{key} holds a password or a signature, which would end in records")
    assert SECRET not in told


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            "data=eurosat data.root=s3://b/x data.cache=c loader=packed loader.shards=s3://b/y",
            ["data.cache=c has no effect with loader.shards=s3://b/y"],
        ),
        ("data=eurosat data.root=s3://b/x data.cache=c loader=packed", []),
        ("engine.prefetch_factor=4", ["engine.prefetch_factor=4 has no effect with engine.num_workers=0"]),
        ("engine.persistent_workers=true", ["engine.persistent_workers=true has no effect with engine.num_workers=0"]),
        ("engine=resident engine.num_workers=4", ["engine.num_workers=4: with engine=resident these load the images"]),
        ("engine.prefetch_factor=4 engine.num_workers=1", []),
        ("engine=resident", []),
    ],
)
def test_what_has_no_effect_is_told(overrides: str, said: list[str]) -> None:
    told = list(without_effect(composed(overrides.split())))
    assert len(told) == len(said)
    assert all(text.startswith(words) for text, words in zip(told, said, strict=True))


@pytest.mark.parametrize(
    "overrides",
    [
        "data.batchsize=3",
        "data.batch_size=0",
        "data=eurosat data.root=/nowhere",
        "ckpt_path=nowhere.ckpt",
        "trainer.devices=0",
        "+logger.foo=1",
    ],
)
def test_it_is_said_by_the_command_before_a_run_begins(train: Train, overrides: str) -> None:
    ended = train(*overrides.split(), quick=False)
    refused(ended, *dict(MISTAKES)[overrides])
    assert not ended.directory.exists()


def test_two_runs_cannot_share_a_folder(train: Train, tmp_path: Path) -> None:
    """The second one leaves all files of the first alone, Hydra's too."""
    with alone_in(tmp_path / "run", "hydra.run.dir"):
        refused(train(), f"hydra.run.dir={tmp_path / 'run'}: another process is writing into it")
        assert names(tmp_path / "run") == [".lock"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.bands=[3,20]", ["data.bands=[3,20]", "band 20", "13 bands", "0 to 12"]),
        ("model.weights=nowhere.pt", ["model.weights=nowhere.pt", "null"]),
        ("profiler=trace profiler.directory=TMP/file", ["file is not a folder; name one below the run's"]),
        ("ckpt_path=TMP/file", ["TMP/file", "cannot be read as a checkpoint"]),
        ("data=cifar10 data.root=TMP", ["data.root=TMP", "cifar-10-batches-py", "data.download=true", "data=sample"]),
        ("hydra.run.dir=TMP/file/run", ["hydra.run.dir=TMP/file/run", "Not a directory", "hydra.run.dir=FOLDER"]),
    ],
)
def test_what_only_building_finds(train: Train, tmp_path: Path, override: str, words: list[str]) -> None:
    (tmp_path / "file").write_text("nothing")
    given = override.replace("TMP", str(tmp_path)).split()
    refused(train(*given, whole=True), *(word.replace("TMP", str(tmp_path)) for word in words))


@pytest.mark.parametrize(
    "overrides",
    [
        "data=eurosat,sample data.root=/nowhere",
        "data=eurosat data.root=/nowhere,/elsewhere",
        "trainer.devices=0,1",
        "trainer=cpu,gpu trainer.accelerator=gpu",
        "logger=csv,tensorboard +logger.flush_logs_every_n_steps=3",
    ],
)
def test_what_a_sweep_varies_is_left_to_its_cells(overrides: str, tmp_path: Path) -> None:
    given = [*overrides.split(), f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    with composing():
        cfg = GlobalHydra.instance().hydra.compose_config("config", given, run_mode=RunMode.MULTIRUN)
    Preflight().on_multirun_start(cfg)
    assert (tmp_path / "sweep").is_dir()


@pytest.mark.skipif(torch.cuda.is_available(), reason="intended: needs a machine without a GPU")
def test_no_gpu(train: Train) -> None:
    ended = train("trainer=gpu", "trainer.accelerator=gpu")
    refused(ended, "trainer.accelerator=gpu, but there is no GPU here; give trainer=cpu")
    assert not ended.directory.exists()


def test_validating_less_often_than_once_an_epoch(train: Train) -> None:
    refused(train("trainer.val_check_interval=1000"), "`val_check_interval` (1000)", "training batches (4)")


@pytest.mark.parametrize("kind", ["EarlyStopping", "ModelCheckpoint"])
def test_a_metric_that_nobody_logs(train: Train, kind: str) -> None:
    watching = (f"+callbacks.watch._target_=lightning.pytorch.callbacks.{kind}", "+callbacks.watch.monitor=val_loss")
    ended = train(*watching, CHECKPOINTS)
    refused(ended, "callbacks.watch.monitor=val_loss is not a metric of this run; choose one of ", "val/loss")
    assert ended.summary["status"] == "failed"


def test_truncated_tiles(train: Train, own_tiles: Path) -> None:
    for tile in sorted(own_tiles.glob("*/*.tif"))[:20]:
        tile.write_bytes(tile.read_bytes()[:60_000])
    ended = train("data=eurosat", f"data.root={own_tiles}", "engine.num_workers=2")
    refused(ended, str(own_tiles), ".tif cannot be read as a tile", "replace or remove")
    refused(ended, "19 more of 30 files tried cannot be read: ", " and 14 more\n")
    assert (ended.summary["status"], ended.summary["error"]["type"]) == ("failed", "DataError")
    assert "\n" not in ended.summary["error"]["message"]


def test_a_checkpoint_of_another_model_or_of_other_data(train: Train, own_tiles: Path, finished_run: Ended) -> None:
    last = finished_run.directory / "checkpoints" / "last.ckpt"
    more = "trainer.max_epochs=9"
    ended = train(f"ckpt_path={last}", more, "model.stem=cifar", whole=True, name="model")
    refused(ended, str(last), "network.conv1.weight", "64x3x7x7", "64x3x3x3")
    ended = train("data=eurosat", f"data.root={own_tiles}", f"ckpt_path={last}", more, whole=True, name="data")
    refused(ended, str(last), "tells apart", "SeaLake", "the data has AnnualCrop, Forest, HerbaceousVegetation")


def test_a_checkpoint_of_other_classes(tmp_path: Path) -> None:
    path = tmp_path / "ten.ckpt"
    torch.save({"state_dict": build_resnet18(channels=3, classes=10).state_dict()}, path)
    fits = build_resnet18(channels=3, classes=7)
    assert "fc.weight is 10x512 there and 7x512 here" in refusal(lambda: require_fitting(path, fits), ConfigError)


def test_no_last_checkpoint(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(train("ckpt_path=last"), "ckpt_path=last", "last.ckpt")


def test_no_space_for_outputs(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused(train(CHECKPOINTS), "hydra.run.dir=", "5 MB free", "hydra.run.dir=FOLDER", "checkpoint.save=none")


def test_an_altered_cifar10(train: Train, tmp_path: Path) -> None:
    root = generated(tmp_path)
    refused(train("data=cifar10", f"data.root={root}"), "data_batch_1", "md5", "data.verify=false")
