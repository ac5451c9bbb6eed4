"""What sides of a training share: how they begin and fail, also with other ranks."""

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from strobe.errors import DataError
from strobe.measure.timing import Rate
from strobe.probe.ranks import Ranks
from strobe.probe.sides import Sides
from support.ranks import together

RATE = Rate(100.0, 95.0, 110.0, 0.01)


def refuse() -> Rate:
    raise DataError("tile_7.tif cannot be read")


def test_a_side_that_fails_says_why_and_leaves_the_others() -> None:
    said: list[str] = []
    sides = Sides(0.1, say=said.append)
    assert sides.attempt("loader", refuse) is None
    assert sides.attempt("transfer", lambda: RATE) is RATE
    assert sides.failures == ["loader: tile_7.tif cannot be read"]
    assert said == ["loader", "transfer"]


def test_ranks_hear_what_begins_and_which_of_them_failed() -> None:
    def measure(ranks: Ranks) -> object:
        sides = Sides(0.1, ranks)
        rate = sides.attempt("loader", lambda: sides.of_all(RATE), ["data.batch_size=8"])
        sides.attempt("model", refuse if ranks.rank else lambda: sides.of_all(RATE))
        return rate, sides.failures

    assert (
        together(measure, measure)
        == [(Rate(200.0, 190.0, 220.0, 0.01), ["model: rank 1: tile_7.tif cannot be read"])] * 2
    )


class WantsAWorker(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        worker = get_worker_info()
        assert worker is not None
        return torch.tensor([index, worker.id])


def test_a_data_set_that_wants_a_worker_has_a_rate_and_no_parts() -> None:
    sides, loader = Sides(0.05), DataLoader(WantsAWorker(), 2, num_workers=1)
    assert sides.loader(loader, torch.device("cpu")).rate.median > 0
    assert sides.parts(loader) is None
    assert not sides.failures
