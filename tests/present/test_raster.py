from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from strobe.callbacks.figures import pixels
from strobe.present.raster import batch_grid, confusion_matrix, contrast

LONG = "HerbaceousVegetation"


def names(n: int) -> list[str]:
    return [LONG, *(f"class{i}" for i in range(1, n))]


def matrix(counts: Any, title: str = "test") -> Any:
    """The two axes: of the matrix, and of the recalls."""
    return confusion_matrix(np.asarray(counts), names(len(counts)), title=title).axes


def written(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def cells(axes: Any) -> NDArray[np.uint8]:
    (image,) = axes.images
    return np.asarray(image.to_rgba(image.get_array(), bytes=True)[..., :3]).astype(int)


@pytest.mark.parametrize("n", [1, 9, 64])
def test_grid_places_images_row_by_row_in_one_size(n: int) -> None:
    images = np.random.default_rng(0).uniform(-1, 2, (n, 3, 16, 32)).astype(np.float32)
    figure = batch_grid(images, [f"label{i}" for i in range(n)], title="wide")
    places = [(image.get_extent()[0], image.get_extent()[3]) for image in figure.axes[0].images]
    assert places == sorted(places, key=lambda place: (place[1], place[0]))
    assert len(set(places)) == n
    assert len({x for x, _ in places}) == min(n, 8)
    for image, pixels_in, text in zip(figure.axes[0].images, images, figure.axes[0].texts, strict=True):
        left, right, bottom, top = image.get_extent()
        assert (right - left, bottom - top) == (96, 48)
        assert np.array_equal(image.get_array(), pixels_in.transpose(1, 2, 0).clip(0, 1))
        assert text.get_position()[0] == (left + right) / 2
        assert text.get_position()[1] > bottom
    assert written(figure.axes[0]) == [f"label{i}" for i in range(n)]


def test_grid_keeps_pixels_hard_at_whole_multiples() -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, 1, 32, 32)) / np.float32(255)
    image[0, 0, 0, :2] = 0, 1
    picture = pixels(batch_grid(image, [""], title=""))
    assert picture.dtype == np.uint8
    expected = (image[0, 0] * 255).round().astype(np.uint8).repeat(3, 0).repeat(3, 1)
    assert np.array_equal(picture[24:120, 24:120], np.stack([expected] * 3, axis=-1))  # grey, within its margin


@pytest.mark.parametrize("label", [LONG, "herbaceous_vegetation", "herbaceous vegetation"])
def test_grid_breaks_a_long_label_between_words(label: str) -> None:
    (text,) = written(batch_grid(np.zeros((1, 1, 8, 8), np.float32), [label], title="").axes[0])
    assert [line.lower().rstrip("_") for line in text.split("\n")] == ["herbaceous", "vegetation"]
    (text,) = written(batch_grid(np.zeros((1, 1, 8, 8), np.float32), [label * 9], title="").axes[0])
    assert text.count("\n") == 2
    assert text.endswith("…")


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


@pytest.mark.parametrize("n", [1, 2, 50])  # from 45 on, cells are as small as they get
def test_odd_names_are_drawn_and_nothing_reaches_into_the_margin(n: int) -> None:
    classes = [f"{LONG} of $a name$ that goes on and on 河{i}" if i % 2 else f"c{i}" for i in range(n)]
    counts = np.random.default_rng(0).integers(0, 99999, (n, n))
    for figure in (
        confusion_matrix(counts, classes, title="a long title of many words " * 12),
        batch_grid(np.zeros((n, 3, 64, 64), np.float32), classes, title="An$unbroken$title" * 9),
    ):
        picture = pixels(figure)
        inside = np.zeros(picture.shape[:2], bool)
        inside[22:-22, 22:-22] = True
        assert (picture[~inside] == 255).all()
        assert (picture[inside] != 255).any()


def test_matrix_darkens_with_the_share_of_the_row() -> None:
    counts = np.array([[0, 5, 10, 35, 50], [900, 50, 0, 0, 50], *np.eye(5, dtype=np.int64)[2:]])
    shown = cells(matrix(counts)[0])
    shades = shown[0].sum(axis=-1).tolist()
    assert shades == sorted(set(shades), reverse=True)
    assert np.array_equal(shown[0, 1], shown[1, 1])
    assert np.array_equal(cells(matrix(counts)[1])[:, 0], shown.diagonal().T)


@pytest.mark.parametrize("share", [0, 1, 15, 40, 55, 60, 65, 80, 100])
def test_matrix_prints_counts_with_contrast(share: int) -> None:
    axes = matrix([[share, 100 - share], [0, 1]])[0]
    behind = to_hex(cells(axes)[0, 0] / 255)
    assert contrast(to_hex(axes.texts[0].get_color()).upper(), behind.upper()) > 3.9


def test_matrix_leaves_out_counts_that_cannot_fit() -> None:
    assert written(matrix(np.full((10, 10), 100))[0]) == ["100"] * 100
    assert not written(matrix(np.full((10, 10), 10**12))[0])
    assert not written(matrix(np.eye(100, dtype=np.int64))[0])


def test_matrix_tells_recalls_accuracy_and_where_there_is_no_data() -> None:
    main, recalls = matrix([[9, 1, 0], [0, 0, 0], [0, 3, 1]], title="Test, EuroSAT")
    assert written(recalls) == ["90.0%", "n/a", "25.0%"]
    assert main.get_title(loc="left") == "Test, EuroSAT: accuracy 71.4% (10 of 14)"
    assert [label.get_text() for label in main.get_yticklabels()] == names(3)
    assert (cells(main)[1] == [0xF2, 0xF2, 0xF0]).all()
    assert matrix(np.zeros((2, 2), np.int64))[0].get_title(loc="left") == "test: accuracy n/a"


@pytest.mark.parametrize(("shape", "classes"), [((2, 3), 2), ((3, 2), 3), ((3, 3), 2), ((4,), 4), ((0, 0), 0)])
def test_matrix_refuses_what_is_not_square(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(ValueError, match="counts: want shape"):
        confusion_matrix(np.zeros(shape, np.int64), names(classes)[:classes], title="")
