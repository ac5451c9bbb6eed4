"""``suite=storage``: each way delivers the photos of its epoch once, from a real storage, as they are."""

from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context, set_start_method
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from strobe.bench.harness.declare import Input, Request
from strobe.bench.suites.storage import suite
from strobe.bench.suites.storage.cells import WAYS, Job, Start, apart
from strobe.bench.suites.storage.suite import FOLDERS
from strobe.errors import ConfigError
from support.composing import bench_config
from support.photo_files import photograph
from support.suite_parts import declared

PHOTOS, SIZE, BATCH, WORKERS = 16, 32, 2, 2
GIVEN = (f"data.size={SIZE}", f"data.batch_size={BATCH}")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """Photos, no two alike, as the suite finds them and writes what is served."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOS):
        photograph(60, 80, number).save(folder / f"{number:02d}.jpg", quality=95)
    given = (*GIVEN, f"data.root={folder}")
    cfg = bench_config("suite=storage", f"suite.photos={PHOTOS}", f"suite.workers={WORKERS}", *given)
    return suite._find(Request(cfg, "image_folder", given), tmp_path_factory.mktemp("scratch"))


@pytest.mark.slow
def test_each_way_delivers_each_photo_once(found: Input, tmp_path: Path) -> None:
    photos = sorted((Path(found.facts["served"]) / "photos" / "photos" / "train").rglob("*.jpg"))
    processes = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    with processes as pool:  # one for each way, as in the suite: clients do not survive a fork
        for way in WAYS:
            given = pool.submit(epoch, way, found, tmp_path).result()
            shown = sorted(nearest(torch.from_numpy(pixels), photos) for pixels in given)
            assert shown == list(range(PHOTOS)), way


def epoch(way: str, found: Input, scratch: Path) -> NDArray[np.uint8]:
    """The pixels that a way delivers, (N, 3, H, W)."""
    set_start_method("fork", force=True)  # of the workers; a process that was spawned spawns its own
    folder = Path(found.facts["served"]) / FOLDERS[way]
    with apart(folder, 0) as endpoint:
        root = f"data.root=s3://strobe/{folder.name}/photos"
        keys = [*found.overrides, *GIVEN, *found.facts["shared"], root, f"data.endpoint={endpoint}"]
        keys += ["loader=native", "engine=litdata", f"engine.num_workers={WORKERS}"]
        job = Job(keys, folder, endpoint, str(scratch / way), SIZE, BATCH, WORKERS, requests=4)
        with closing(WAYS[way](job, Start(WORKERS))) as batches:
            return np.concatenate([batch.numpy().copy() for batch in batches])


def nearest(pixels: Tensor, photos: list[Path]) -> int:
    """The number of the photo that these pixels, (3, H, W) uint8, show."""
    whole = [torch.frombuffer(Image.open(path).resize((SIZE, SIZE)).tobytes(), dtype=torch.uint8) for path in photos]
    distances = [(pixels.permute(1, 2, 0).flatten().float() - one.float()).abs().mean() for one in whole]
    assert min(distances) < 8, f"{min(distances):.1f} levels from the nearest photo"
    return int(torch.tensor(distances).argmin())


def test_webdataset_is_measured_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {cell.column for cell in declared("storage").cells}
    assert "WebDataset" in columns
    monkeypatch.setattr(suite, "find_spec", lambda name: None)
    assert {cell.column for cell in declared("storage").cells} == columns - {"WebDataset"}
    with pytest.raises(ConfigError, match=r"webdataset is not installed; pip install webdataset"):
        declared("storage", "suite.ways=[webdataset]")
