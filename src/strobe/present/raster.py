"""Pictures for loggers: a grid of images and a confusion matrix; and ink that stands out on a colour."""

import re
from collections.abc import Sequence
from math import ceil
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strobe.callbacks.figures import FAINT, INK, PAPER, blank, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LETTER = 0.6  # mean width of a letter in heights of its font
_SMALLEST_COUNT = 10  # font size
_COLUMNS, _CELL = 8, 96  # images in a row of a grid at most, and pixels of the longer side of one


def batch_grid(images: NDArray[np.float32], labels: Sequence[str], *, title: str) -> "Figure":
    """Draw a batch as a grid of captioned images under a title, row by row.

    Args:
        images: ``(N, 3, H, W)`` RGB or ``(N, 1, H, W)`` grey, denormalised to [0, 1]; clipped beyond.
        labels: N captions. A long one is broken between its words, then cut with an ellipsis.
        title: Wrapped to the width of the grid.

    Raises:
        ValueError: The images have another shape, there are none, or the labels do not match them.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.size:
        raise ValueError(f"images: want shape (N, 1 or 3, H, W) with N > 0, got {images.shape}")
    if len(labels) != len(images):
        raise ValueError(f"labels: want one for each of the {len(images)} images, got {len(labels)}")
    captions = [_wrapped(label, _CELL, 12, max_lines=3, placeholder="…") for label in labels]
    cell, columns, rows = _CELL, min(_COLUMNS, len(images)), ceil(len(images) / _COLUMNS)
    across, down = cell + 12, cell + 18 + 15 * max(caption.count("\n") + 1 for caption in captions)
    figure = blank(columns * across - 12, rows * down)
    axes = figure.add_axes((0, 0, 1, 1))
    height, width = (side * cell / max(images.shape[2:]) for side in images.shape[2:])
    method = "antialiased" if cell % max(images.shape[2:]) else "nearest"  # whole multiples keep hard pixel edges
    for index, (image, caption) in enumerate(zip(images, captions, strict=True)):
        x, y = index % columns * across, index // columns * down
        left, top = x + (cell - width) / 2, y + (cell - height) / 2
        rgb = np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0)
        axes.imshow(rgb.clip(0, 1), extent=(left, left + width, top + height, top), interpolation=method)
        axes.text(x + cell / 2, y + cell + 4, caption, fontsize=12, color=INK, ha="center", va="top")
    axes.set(xlim=(0, columns * across - 12), ylim=(rows * down, 0), aspect="auto")
    axes.set_axis_off()
    _write_title(axes, title, max(columns * across, 5 * cell))
    return figure


def confusion_matrix(counts: NDArray[np.int64], classes: Sequence[str], *, title: str) -> "Figure":
    """Draw a confusion matrix, coloured by the share of each true class, with recalls at its right.

    Counts are left out where cells are too small to read them. A class without images has recall n/a.

    Args:
        counts: ``(C, C)`` numbers of images; rows are true classes, columns predicted ones.
        classes: C names; very long ones are cut with an ellipsis.
        title: Comes before the overall accuracy in the title line.

    Raises:
        ValueError: ``counts`` is not square, or does not match ``classes``.
    """
    n = len(classes)
    if not n or counts.shape != (n, n):
        raise ValueError(f"counts: want shape ({n}, {n}) for {n} classes, got {counts.shape}")
    support = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, support, out=np.full(counts.shape, np.nan), where=support > 0)
    recalls = shares.diagonal()[:, None]
    told = np.array([["n/a" if np.isnan(recall) else f"{recall:.1%}"] for recall in recalls[:, 0]])
    cell = min(120, max(16, 720 // n))
    font = min(16.0, 0.7 * cell)
    names = [plain(name, 24) for name in classes]
    longest = max(map(len, names)) * _LETTER * font
    count_font = min(18, 0.6 * cell, 0.85 * cell / (_LETTER * len(str(counts.max()))))

    side = n * cell
    figure = blank(side, side)
    matrix = figure.add_axes((0, 0, 1, 1))
    _draw_cells(matrix, shares, counts if count_font >= _SMALLEST_COUNT else None, count_font)
    angle = 0 if longest < cell - 8 else 45 if cell > 1.5 * font else 90
    matrix.set_xticks(range(n), names, rotation=angle, ha="right" if angle else "center", rotation_mode="anchor")
    matrix.set_yticks(range(n), names)
    matrix.tick_params(labelsize=font, labelcolor=INK, length=0, pad=font / 2)
    matrix.set_xlabel("predicted", fontsize=18, color=FAINT)
    matrix.set_ylabel("true", fontsize=18, color=FAINT)
    beside = figure.add_axes((1 + 12 / side, 0, 4.5 * font / side, 1))
    _draw_cells(beside, recalls, told, font)
    beside.set_xticks([0], ["recall"], fontsize=font, color=FAINT)
    beside.xaxis.tick_top()
    beside.set_yticks([])
    hits, total = int(np.trace(counts)), int(counts.sum())
    accuracy = f"{hits / total:.1%} ({hits:,} of {total:,})" if total else "n/a"
    _write_title(matrix, f"{title}: accuracy {accuracy}", max(side, 480))
    return figure


def _draw_cells(axes: "Axes", shares: NDArray[np.float64], texts: NDArray[Any] | None, font: float) -> None:
    """Blues for the shares, steeper at the start so that a few per cent show, grey for NaN."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm, to_hex

    colours, norm = colormaps["Blues"].with_extremes(bad="#F2F2F0"), PowerNorm(0.6, 0, 1)
    axes.imshow(shares, colours, norm, aspect="auto", interpolation="nearest")
    axes.set_frame_on(False)
    axes.tick_params(length=0, which="both")
    height, width = shares.shape
    axes.hlines(np.arange(1, height) - 0.5, -0.5, width - 0.5, color=PAPER, linewidth=1)
    axes.vlines(np.arange(1, width) - 0.5, -0.5, height - 0.5, color=PAPER, linewidth=1)
    for (row, column), text in np.ndenumerate(texts) if texts is not None else ():
        ink = ink_on(to_hex(colours(norm(shares[row, column])))) if shares[row, column] > 0 else FAINT
        axes.text(column, row, str(text), fontsize=font, color=ink, ha="center", va="center_baseline", in_layout=False)


def _write_title(axes: "Axes", title: str, width: float) -> None:
    axes.set_title(_wrapped(title, width, 20), fontsize=20, color=INK, loc="left", pad=34)


def _wrapped(text: str, width: float, font: int, **options: Any) -> str:
    """Text in lines of about `width` pixels; also broken inside snake_case, kebab-case and CamelCase."""
    wrapper = TextWrapper(max(int(width / (_LETTER * font)), 2), **options)
    wrapper.wordsep_re = re.compile(r"(\s+)|(?<=[_-])|(?<=[a-z])(?=[A-Z])")
    return "\n".join(plain(line, 200) for line in wrapper.wrap(text))


def ink_on(colour: str) -> str:
    """Of ink and paper, the one that stands out more on a colour ``#RRGGBB``."""
    return max(INK, PAPER, key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours ``#RRGGBB`` by WCAG 2, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
