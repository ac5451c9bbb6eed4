"""Which part of a photo is taken: always inside, spread as it should be, and a function of seed, epoch and photo."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torchvision.transforms import RandomResizedCrop

from strobe.app.loaders.crop_policy import AREA, ASPECT, CENTRE, Boxes, CropPolicy, uniform

KINDS = ["resize", "random_crop", "random_resized_crop"]
SIZES = [(533, 800), (800, 533), (64, 64), (1, 1), (1, 500), (500, 1), (3, 2), (20, 4000), (4000, 20), (65500, 65500)]


def boxes(framing: CropPolicy, size: tuple[int, int], count: int, epoch: int = 0) -> Boxes:
    return framing.boxes(np.tile(size, (count, 1)), np.arange(count), epoch)


def spread(values: NDArray[np.float64]) -> float:
    """How far values lie from uniform over [0, 1]: the Kolmogorov-Smirnov statistic, times the root of their number."""
    count = len(values)
    steps = np.arange(count + 1) / count
    ordered = np.sort(values)
    return float(np.sqrt(count) * max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1])))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_box_lies_inside_the_photo(kind: str, random: bool, size: tuple[int, int]) -> None:
    found = boxes(CropPolicy(kind, 224, random, 3), size, 500)
    assert found.dtype == np.int64
    assert found.shape == (500, 4)
    top, left, height, width = found.T
    assert top.min() >= 0
    assert left.min() >= 0
    assert min(height.min(), width.min()) >= 1
    assert (top + height).max() <= size[0]
    assert (left + width).max() <= size[1]


@pytest.mark.parametrize("random", [False, True])
def test_resize_takes_the_whole_photo(random: bool) -> None:
    assert np.all(boxes(CropPolicy("resize", 224, random), (30, 500), 4) == [0, 0, 30, 500])


@pytest.mark.parametrize(("size", "side"), [((533, 800), 256), ((256, 300), 256), ((100, 800), 100), ((1, 9), 1)])
@pytest.mark.parametrize("random", [False, True])
def test_a_crop_is_as_large_as_asked_or_as_there_is(random: bool, size: tuple[int, int], side: int) -> None:
    assert np.all(boxes(CropPolicy("random_crop", 256, random), size, 50)[:, 2:] == side)


def test_without_chance_it_is_the_centre() -> None:
    assert boxes(CropPolicy("random_crop", 256), (533, 800), 1).tolist() == [[138, 272, 256, 256]]
    assert boxes(CropPolicy("random_resized_crop", 224), (400, 800), 1).tolist() == [[25, 225, 350, 350]]
    assert CENTRE * 256 == 224
    assert np.array_equal(
        boxes(CropPolicy("random_crop", 256), (533, 800), 9, 0), boxes(CropPolicy("random_crop", 256), (533, 800), 9, 5)
    )


def test_every_place_of_a_crop_is_as_likely() -> None:
    found = boxes(CropPolicy("random_crop", 8, True, 1), (12, 17), 100_000)
    for place, choices in ((found[:, 0], 5), (found[:, 1], 10)):
        counts = np.bincount(place, minlength=choices)
        assert len(counts) == choices
        np.testing.assert_allclose(counts, len(found) / choices, rtol=0.05)
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.02


def test_areas_and_aspect_ratios_are_torchvisions() -> None:
    """A square so large that rounding and what does not fit hardly count."""
    side = 20_000
    _, _, height, width = boxes(CropPolicy("random_resized_crop", 224, True, 2), (side, side), 20_000).T
    area, aspect = height * width / side**2, width / height
    assert area.min() >= AREA[0] - 1e-3
    assert aspect.min() >= ASPECT[0] - 1e-3
    assert aspect.max() <= ASPECT[1] + 1e-3
    small = area < 0.5  # of these all aspect ratios fit
    assert spread((area[small] - AREA[0]) / (0.5 - AREA[0])) < 2  # 2: one chance in 1,500, and the seed is fixed
    low, high = np.log(ASPECT)
    assert spread((np.log(aspect[small]) - low) / (high - low)) < 2


@pytest.mark.parametrize("size", [(3, 3000), (3000, 3), (1, 5000), (7, 4001)], ids=str)
def test_where_nothing_fits_it_is_torchvisions_box(size: tuple[int, int]) -> None:
    theirs = RandomResizedCrop.get_params(torch.empty(3, *size), list(AREA), list(ASPECT))
    assert np.all(boxes(CropPolicy("random_resized_crop", 224, True, 4), size, 300) == theirs)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_box_depends_on_seed_epoch_and_photo_alone(kind: str) -> None:
    framing, sizes, photos = CropPolicy(kind, 32, True, 7), np.tile((533, 800), (40, 1)), np.arange(1000, 1040)
    expected = framing.boxes(sizes, photos, 3)
    assert np.array_equal(CropPolicy(kind, 32, True, 7).boxes(sizes, photos, 3), expected)
    order = np.random.default_rng(1).permutation(40)
    assert np.array_equal(framing.boxes(sizes, photos[order], 3), expected[order])
    for place in range(40):
        assert np.array_equal(framing.boxes(sizes[:1], photos[place : place + 1], 3)[0], expected[place])
    assert len(np.unique(expected, axis=0)) > 35
    for other in (framing.boxes(sizes, photos, 4), CropPolicy(kind, 32, True, 8).boxes(sizes, photos, 3)):
        assert np.mean(np.all(other == expected, axis=1)) < 0.1


def test_only_random_boxes_vary() -> None:
    varying = {(kind, random): CropPolicy(kind, 32, random).varies for kind in KINDS for random in (False, True)}
    assert [key for key, varies in varying.items() if varies] == [("random_crop", True), ("random_resized_crop", True)]


def test_random_numbers_are_uniform_and_independent() -> None:
    drawn = uniform(5, 0, np.arange(20_000))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert max(spread(column) for column in drawn.T) < 2
    columns = np.corrcoef(
        np.column_stack([drawn, uniform(5, 1, np.arange(20_000)), uniform(6, 0, np.arange(20_000))]).T
    )
    assert np.abs(columns - np.eye(len(columns))).max() < 0.035
    neighbours = [np.corrcoef(column[1:], column[:-1])[0, 1] for column in drawn.T]
    assert np.abs(neighbours).max() < 0.03


def test_random_numbers_do_not_change_from_release_to_release() -> None:
    """Else a run resumed after an update would see other crops; of SplitMix64 the reference's own numbers."""
    assert uniform(42, 1, np.array([123_456]))[0, :3] == pytest.approx(EXPECTED, abs=1e-15)


def splitmix64(state: int) -> int:
    mask = 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


KEY = int(np.random.SeedSequence([42, 1]).generate_state(1, np.uint64)[0])
EXPECTED = [
    (splitmix64((KEY + (123_456 * 22 + 1 + draw) * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53 for draw in range(3)
]
