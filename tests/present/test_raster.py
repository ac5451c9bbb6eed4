from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from strobe.present.raster import batch_grid, confusion_matrix

Pixels = NDArray[np.uint8]
EMPTY, FULL, NO_DATA = (238, 243, 250), (8, 48, 107), (242, 242, 240)
LONG = "HerbaceousVegetation"
TITLE = "test, generated sample data"


def names(n: int) -> list[str]:
    return [LONG, *(f"class{i}" for i in range(1, n))]


def solid(*colours: Sequence[float], height: int = 32, width: int = 32) -> NDArray[np.float32]:
    return np.array(colours, np.float32)[:, :, None, None].repeat(height, 2).repeat(width, 3)


def box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom (exclusive) of what is set."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def where(picture: Pixels, colour: Sequence[float]) -> NDArray[np.bool_]:
    return np.asarray((picture == colour).all(axis=-1))


def has_margin(picture: Pixels, pixels: int) -> bool:
    left, top, right, bottom = box((picture != 255).any(axis=-1))
    height, width, _ = picture.shape
    return bool(min(left, top, width - right, height - bottom) >= pixels)


def luminance(colours: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Relative luminance by WCAG 2."""
    value = colours / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ [0.2126, 0.7152, 0.0722])


class Matrix(NamedTuple):
    """A drawn matrix and where its cells lie, found from the dark diagonal of an all-right one."""

    picture: Pixels
    left: int
    top: int
    cell: int

    def at(self, row: int, column: int) -> Pixels:
        y, x = self.top + row * self.cell, self.left + column * self.cell
        return self.picture[y : y + self.cell - 1, x : x + self.cell - 1]

    def colour(self, row: int, column: int) -> tuple[int, ...]:
        return tuple(self.at(row, column)[1, 1].tolist())

    def recalls(self) -> Pixels:
        return self.picture[self.top :, self.left + self.cell * self.size + 5 :]

    @property
    def size(self) -> int:
        return round((box(where(self.picture, EMPTY))[3] - self.top) / self.cell)


def draw(counts: NDArray[np.int64], title: str = TITLE) -> Matrix:
    n = len(counts)
    all_right = where(confusion_matrix(np.eye(n, dtype=np.int64) * 9, names(n), title=title), FULL)
    left, top, _, _ = box(all_right)
    cell = int(np.argmin(all_right[top, left:])) + 1
    return Matrix(confusion_matrix(counts, names(n), title=title), left, top, cell)


@pytest.mark.parametrize("n", [1, 5, 64])
@pytest.mark.parametrize("cell", [32, 96])
def test_grid_cuts_nothing_at_its_edges(n: int, cell: int) -> None:
    labels = [LONG, "River", "AnUnbrokenlabelwithoutanyendinsight", "", "two words"] * 13
    picture = batch_grid(np.zeros((n, 3, 64, 64), np.float32), labels[:n], title=TITLE, cell=cell)
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert has_margin(picture, cell // 4 - 2)


def test_grid_places_images_row_by_row() -> None:
    colours = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)]
    picture = batch_grid(solid(*colours), ["name"] * 5, title="colours", columns=2)
    boxes = [box(where(picture, [255 * channel for channel in colour])) for colour in colours]
    assert all((right - left, bottom - top) == (96, 96) for left, top, right, bottom in boxes)
    (x0, y0), (x1, _), (_, y1), _, (_, y2) = (found[:2] for found in boxes)
    assert [found[:2] for found in boxes] == [(x0, y0), (x1, y0), (x0, y1), (x1, y1), (x0, y2)]
    assert x1 - x0 > 96
    assert y2 - y1 == y1 - y0 > 96


def test_grid_keeps_pixels_hard_at_whole_multiples() -> None:
    image = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    image[0, :, 0, 0] = 1, 0, 1
    picture = batch_grid(image, [""], title="noise")
    left, top, _, _ = box(where(picture, (255, 0, 255)))
    expected = (image[0].transpose(1, 2, 0) * 255).round().repeat(3, 0).repeat(3, 1)
    assert np.array_equal(picture[top : top + 96, left : left + 96], expected)


def test_grid_smooths_other_scales() -> None:
    image = solid((0, 0, 0), height=64, width=64)
    image[..., 33:] = np.array([1, 0, 0], np.float32)[:, None, None]
    red = batch_grid(image, [""], title="")[..., 0]
    assert ((red > 50) & (red < 200)).any()


def test_grid_shows_one_channel_as_grey_and_clips() -> None:
    picture = batch_grid(solid([0.5], [-1], [2]), ["a", "b", "c"], title="grey")
    assert where(picture, (128, 128, 128)).sum() >= 96 * 96
    assert where(picture, (0, 0, 0)).sum() == 96 * 96


def test_grid_keeps_the_aspect_ratio() -> None:
    picture = batch_grid(solid((1, 0, 0), height=16, width=32), ["wide"], title="wide")
    left, top, right, bottom = box(where(picture, (255, 0, 0)))
    assert (right - left, bottom - top) == (96, 48)


@pytest.mark.parametrize("label", [LONG, "herbaceous_vegetation", "herbaceous vegetation"])
def test_grid_breaks_a_long_label_between_words(label: str) -> None:
    def caption(label: str) -> tuple[int, int, int, int]:
        picture = batch_grid(solid((1, 0, 0)), [label], title="")
        left, _, right, bottom = box(where(picture, (255, 0, 0)))
        ink_left, ink_top, ink_right, ink_bottom = box((picture[bottom:] != 255).any(axis=-1))
        assert left - 2 <= ink_left < ink_right <= right + 2
        return ink_left, ink_top, ink_right, ink_bottom

    assert caption(label)[3] > 1.5 * caption("Vegetation")[3]


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((3, 8, 8), ["a"] * 3, "images"),
        ((1, 2, 8, 8), ["a"], "images"),
        ((0, 3, 8, 8), [], "images"),
        ((2, 3, 8, 8), ["a"], "each of the 2 images, got 1"),
    ],
)
def test_grid_refuses_what_it_cannot_draw(shape: tuple[int, ...], labels: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch_grid(np.zeros(shape, np.float32), labels, title="")


@pytest.mark.parametrize("n", [2, 3, 10, 30, 100])
@pytest.mark.parametrize("title", ["test", "a long title of many words " * 12])
def test_matrix_cuts_nothing_at_its_edges(n: int, title: str) -> None:
    classes = [f"{LONG} of a name that goes on and on {i}" if i % 2 else f"c{i}" for i in range(n)]
    counts = np.random.default_rng(0).integers(0, 99999, (n, n))
    picture = confusion_matrix(counts, classes, title=title)
    assert picture.dtype == np.uint8
    assert has_margin(picture, 38)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_matrix_colours_right_cells_dark_and_empty_ones_light(n: int) -> None:
    matrix = draw(np.eye(n, dtype=np.int64) * 9)
    assert matrix.size == n
    for row in (0, n - 1):
        for column in (0, n - 1):
            assert matrix.colour(row, column) == (FULL if row == column else EMPTY)


def test_matrix_darkens_with_the_share_of_the_row() -> None:
    counts = np.array([[0, 5, 10, 35, 50], [900, 50, 0, 0, 50], *np.eye(5, dtype=np.int64)[2:]])
    matrix = draw(counts)
    shades = [luminance(matrix.at(0, column)[1, 1]).item() for column in range(5)]
    assert shades == sorted(set(shades), reverse=True)
    assert matrix.colour(0, 1) == matrix.colour(1, 1)


@pytest.mark.parametrize("share", [0, 1, 15, 40, 60, 65, 67, 80, 100])
def test_matrix_prints_counts_with_contrast(share: int) -> None:
    matrix = draw(np.array([[share, 100 - share], [0, 1]]))
    shades = luminance(matrix.at(0, 0))
    assert (shades.max() + 0.05) / (shades.min() + 0.05) > 3.9


def test_matrix_leaves_out_counts_that_cannot_fit() -> None:
    def colours_in_cell(counts: NDArray[np.int64]) -> int:
        return len(np.unique(draw(counts).at(3, 3).reshape(-1, 3), axis=0))

    assert colours_in_cell(np.full((10, 10), 100)) > 1
    assert colours_in_cell(np.full((10, 10), 10**12)) == 1
    assert colours_in_cell(np.eye(100, dtype=np.int64)) == 1


def test_matrix_shows_recall_beside_each_row() -> None:
    matrix = draw(np.array([[10, 0], [10, 0]]))
    first, second = (matrix.recalls()[row * matrix.cell + 3 : (row + 1) * matrix.cell] for row in (0, 1))
    assert where(first, FULL).any()
    assert where(second, EMPTY).any()
    assert not where(second, FULL).any()


def test_matrix_shows_a_class_without_images_as_no_data() -> None:
    counts = np.diag([9, 0, 9])
    matrix = draw(counts)
    assert matrix.colour(1, 1) == NO_DATA
    assert where(matrix.recalls(), NO_DATA).any()
    assert not where(draw(np.diag([9, 9, 9])).picture, NO_DATA).any()
    assert has_margin(confusion_matrix(np.zeros((2, 2), np.int64), ["a", "b"], title="none"), 38)


def test_matrix_title_tells_the_accuracy() -> None:
    half, most = draw(np.full((10, 10), 10)), draw(np.eye(10, dtype=np.int64) * 89 + 1)
    assert not np.array_equal(half.picture[: half.top - 40], most.picture[: most.top - 40])
    assert draw(np.eye(10, dtype=np.int64), title="words " * 60).top > half.top


@pytest.mark.parametrize(("shape", "classes"), [((2, 3), 2), ((3, 2), 3), ((3, 3), 2), ((4,), 4), ((0, 0), 0)])
def test_matrix_refuses_what_is_not_square(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(ValueError, match="counts: want shape"):
        confusion_matrix(np.zeros(shape, np.int64), names(classes)[:classes], title="")
