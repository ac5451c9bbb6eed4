"""``suite=workers``: photos by torch's DataLoader, SPDL and ours, over numbers of workers, in four stages."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from strobe.bench.harness.declare import Cell, Input, Plan, Request, Suite, Table, deferred, row
from strobe.bench.harness.results import CellRecord, faster, measured, speed
from strobe.bench.inputs import MOST_FILES, class_folders, find_photos, require_sound
from strobe.errors import ConfigError
from strobe.measure import environment
from strobe.overrides import key_of
from strobe.present.format import counted, figure

STAGES = {  # each does what those before it do
    "resize": "Decode and resize, one photo at a time",
    "batch": "Decode, resize, batch",
    "normalise": "Decode, resize, batch, normalise",
    "transfer": "Decode, resize, batch, normalise, transfer to the GPU",
}
COLUMNS = {
    "torch": "DataLoader (source)",
    "torch_tuned": "DataLoader (tuned)",
    "spdl": "SPDL (source)",
    "spdl_batches": "SPDL (whole batches)",
    "strobe": "Strobe",
    "packed": "Strobe, packed",
}
OURS = {"strobe": ("loader=native", "engine=spdl"), "packed": ("loader=packed", "engine=spdl")}
PUBLISHED = ("torch", "spdl")  # in whose processes torch computes on all cores, as nobody told it otherwise
FULL_MODE = ("strobe loader.dct_scaling=false", "strobe engine=torch")  # columns of the full mode alone
WORKERS = (1, 2, 4, 8, 16, 32)
IN_FULL = "dct_scaling=false"  # in the name of ours that decodes photos at their full size
LEAST_BATCHES = 8  # of links to photos, so that an epoch is no shorter, however few photos there are
ONE_BY_ONE = 32  # photos of a worker's turn where they are not batched


def declare(cfg: DictConfig) -> Suite:
    """Stages x workers x pipelines; the ratios are to the published DataLoader with as many workers."""
    has_gpu = _has_gpu()
    possible = [stage for stage in STAGES if stage != "transfer" or has_gpu]
    stages = list(cfg.suite.stages or ([possible[0], possible[-1]] if cfg.quick else possible))
    if "transfer" in stages and not has_gpu:
        raise ConfigError(f"suite.stages=[{','.join(stages)}]: transfer needs a GPU, and there is none; leave it out")
    every = [*COLUMNS, *(() if cfg.quick else FULL_MODE)]
    pipelines = _pipelines(every if cfg.suite.pipelines is None else cfg.suite.pipelines)
    most = 2 if cfg.quick else max(4, environment.usable_cores())
    workers = list(cfg.suite.workers or [count for count in WORKERS if count <= most])
    cells: list[Cell] = []
    for stage in stages:
        for count in workers:
            options = {"stage": stage, "workers": count, "limited": cfg.threads is not None}
            ways = {}  # what torch computes on in the published ones is set when they run
            for entry in pipelines:
                name, *more = entry.split()
                make = deferred("workers.pipelines:deliver", pipeline=entry, **options)
                ways[" ".join([COLUMNS[name], *more])] = make
            at = {"threads": cfg.threads or 1, "cache": "warm", "at": float(count)}
            cells += row(stage, str(count), ways, COLUMNS["torch"], **at)
    missing = "" if has_gpu else " There is no GPU here, and so no transfer to one."
    return Suite(
        title="Photos by workers",
        about="Whole photos, decoded and resized to squares, in order and without an end, from files in the page "
        "cache. A repetition begins when the workers run and what they had ready is taken. DataLoader (source) and "
        "SPDL (source) are the pipelines of SPDL's published comparison; the others pass integers on and "
        "normalise them in place in the training process, or on its GPU. DataLoader (tuned) and Strobe may decode a "
        f"photo at a smaller size (DCT scaling). Strobe is {' '.join(OURS['strobe'])}, unless a column says otherwise. "
        "Strobe, packed reads photos that were resized before, and decodes nothing: it is another task. Unless "
        "threads=N is given, torch computes on all cores in the training process of the two published pipelines, and "
        f"on one in the others'.{missing}",
        cells=cells,
        tables=[Table(name, STAGES[name], chart="lines", rows="workers", logarithmic=True) for name in stages],
        quick=Plan(rounds=1, turn=0.1, budget=40),
        full=Plan(rounds=7, turn=1.0, budget=1500),
        find=_find,
        form="photos",
        conclude=conclude,
        varies={
            "engine": 'suite.workers=[N,...], or suite.pipelines=["strobe engine.KEY=VALUE",...]',
            "loader": 'suite.pipelines=["strobe loader=NAME",...]',
            "data.framing": "suite=crop, which measures crops,",
            "model": "no model (nothing is trained)",
        },
        packages=["spdl-core", "spdl-io", "pillow", "torchvision"],
    )


def _pipelines(entries: Sequence[str]) -> list[str]:
    """What the user chose; only ``strobe`` takes overrides after its name."""
    for entry in entries:
        name, *overrides = entry.split() or [""]
        if name not in COLUMNS:
            raise ConfigError(f"suite.pipelines does not know {entry!r}; choose from {', '.join(COLUMNS)}")
        if overrides and name not in OURS:
            raise ConfigError(f"suite.pipelines: {entry!r} cannot be configured, as ours can; give {name} alone")
        for path in map(key_of, overrides):
            if path.partition(".")[0] not in {"loader", "engine"} or path == "engine.num_workers":
                raise ConfigError(
                    f"suite.pipelines: {entry!r} sets {path}, which all pipelines must share; only loader and engine "
                    "may differ, and numbers of workers are suite.workers=[N,...]"
                )
    if not entries or len(set(entries)) < len(entries):
        listed = f"suite.pipelines=[{','.join(entries)}]"
        raise ConfigError(f"{listed} must name one or more, each once; choose from {', '.join(COLUMNS)}")
    return list(entries)


def _has_gpu() -> bool:
    if not environment.has_gpu():
        return False
    import torch  # which takes seconds to import, and is asked only where the answer may be yes

    return torch.cuda.is_available()


def _find(request: Request, scratch: Path) -> Input:
    """The photos as class folders of links, all of them for training, in whole batches.

    Every pipeline reads the same links. Where photos are few, some have one link more than others.
    """
    from strobe.app.data.image_folder import USUAL
    from strobe.app.loaders.pil import PilLoader

    photos = find_photos(request, scratch, most=MOST_FILES)
    paths = photos.facts["paths"]
    loader, whole = PilLoader(scale="device"), lambda tall, wide: (0, 0, tall, wide)
    with ThreadPoolExecutor(environment.usable_cores()) as pool:  # a DataError names the first that is damaged
        list(pool.map(lambda path: loader.pixels(path, whole, request.cfg.data.size or USUAL), paths))
    size = request.cfg.data.batch_size
    batches = max(LEAST_BATCHES, -(-len(paths) // size))
    root = scratch / "workers"
    class_folders(list(islice(cycle(paths), batches * size)), root / "train")
    class_folders(list(islice(cycle(paths), 2)), root / "val")
    facts = {"root": str(root), "packs": str(scratch / "packs")}
    for entry in request.cfg.suite.pipelines or ():
        keys = ["data=image_folder", *request.overrides, *own_overrides(entry, "batch", 1, facts)]
        require_sound(f"suite.pipelines: {entry!r}", keys)
    return Input(photos.title, photos.generated, photos.overrides, facts)


def own_overrides(pipeline: str, stage: str, workers: int, facts: Mapping[str, Any]) -> list[str]:
    """The overrides of a cell."""
    name, *more = pipeline.split()
    own = [f"data.root={facts['root']}", "data.framing=resize", *OURS.get(name, ()), *more]
    if name in OURS:
        own.append(f"engine.num_workers={workers}")
    if "loader=packed" in own:
        own.append(f"loader.directory={facts['packs']}")
    if stage == "resize":
        own.append("data.batch_size=1")
    return own


def conclude(record: Mapping[str, Any]) -> list[str]:
    """For each stage, the longest first, the best of ours against the others."""
    sentences, more = list[str](), list[str]()
    for stage, title in reversed(STAGES.items()):
        cells = measured(record, stage)
        ours = [cell for cell in cells if cell["column"].startswith("Strobe") and "packed" not in cell["column"]]
        in_full = [cell for cell in ours if IN_FULL in cell["column"]]
        if ours:
            best = max(ours, key=speed)
            sentences.append(f"{title}: {_beside(best, cells, 'torch', 'spdl')}.")
            more.append(f"{title}: {_beside(best, cells, 'torch_tuned', 'spdl_batches')}.")
            if in_full and best not in in_full:
                best = max(in_full, key=speed)
                more.append(f"{title}, photos decoded in full: {_beside(best, cells, *tuple(COLUMNS)[:4])}.")
    return [*sentences, *more]


def _beside(ours: CellRecord, cells: list[CellRecord], *others: str) -> str:
    """What it delivers, against the others with as many workers."""
    beside = {cell["column"]: cell for cell in cells if cell["at"] == ours["at"]}
    against = {COLUMNS[name]: faster(ours, beside.get(COLUMNS[name])) for name in others}
    words = f"{ours['column']} with {counted(int(ours['at']), 'worker')} delivers {figure(speed(ours))} images/s"
    return ", ".join([words, *(f"{times} times {name}" for name, times in against.items() if times)])
