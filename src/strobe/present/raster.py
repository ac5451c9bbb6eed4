"""Pictures for loggers and reports, drawn with Pillow alone: a grid of images and a confusion matrix."""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, cos, inf, radians
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps
from PIL.ImageFont import FreeTypeFont

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

_INK: Colour = (26, 30, 40)
_MUTED: Colour = (96, 104, 118)
_PAPER: Colour = (255, 255, 255)
_NO_DATA: Colour = (242, 242, 240)
# Light to dark blue (after ColorBrewer's Blues), steeper at the start so that a few per cent show.
_BLUES = np.array([(238, 243, 250), (198, 219, 239), (107, 174, 214), (33, 113, 181), (8, 48, 107)])
_BLUES_AT = (0.0, 0.15, 0.45, 0.75, 1.0)
_WHITE_TEXT_FROM = 0.66  # the share from which white stands out more than ink
_SMALLEST_COUNT = 16  # font size
_GAP = 14
_BLEED = 2  # pixels by which a glyph may reach beyond the length of its text
_SPACES = r"(?<=\s)(?!\d)"  # a number stays with the word before it
_WORDS = r"(?<=[\s_-])|(?<=[a-z])(?=[A-Z])"  # also inside snake_case, kebab-case and CamelCase


def batch_grid(
    images: NDArray[np.float32], labels: Sequence[str], *, title: str, columns: int = 8, cell: int = 96
) -> Pixels:
    """Draw a batch as a grid of captioned images under a title, row by row.

    Args:
        images: ``(N, 3, H, W)`` RGB or ``(N, 1, H, W)`` grey, denormalised to [0, 1]; clipped beyond.
        labels: N captions. A long one is broken between its words, then cut with an ellipsis.
        title: Wrapped to the width of the grid.
        columns: Images in a row, at most.
        cell: Longer side of each drawn image in pixels; text and spacing follow it.

    Returns:
        ``(H', W', 3)`` picture on white.

    Raises:
        ValueError: The images have another shape, there are none, or the labels do not match them.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.size:
        raise ValueError(f"images: want shape (N, 1 or 3, H, W) with N > 0, got {images.shape}")
    if len(labels) != len(images):
        raise ValueError(f"labels: want one for each of the {len(images)} images, got {len(labels)}")
    font, gap = typeface(max(10, cell // 7)), cell // 8
    captions = [_wrapped(label, font, cell, breaks=_WORDS, lines=3) for label in labels]
    columns, rows = min(columns, len(images)), ceil(len(images) / columns)
    caption_height = max(_height(caption, font) for caption in captions)
    across, down = cell + gap, cell + gap // 2 + caption_height + gap

    body = Image.new("RGB", (columns * across - gap, rows * down - gap), _PAPER)
    draw = ImageDraw.Draw(body)
    for index, (image, caption) in enumerate(zip(images, captions, strict=True)):
        x, y = index % columns * across, index // columns * down
        tile = _tile(image, cell)
        body.paste(tile, (x + (cell - tile.width) // 2, y + (cell - tile.height) // 2))
        _write(draw, (x + cell / 2, y + cell + gap // 2), caption, font, anchor="ma")
    return _page(body, title, typeface(max(16, cell // 5)), margin=cell // 4, widen_to=5 * cell)


def confusion_matrix(counts: NDArray[np.int64], classes: Sequence[str], *, title: str) -> Pixels:
    """Draw a confusion matrix, coloured by the share of each true class, with recalls at its right.

    Counts are left out where cells are too small to read them. A class without images has recall n/a.

    Args:
        counts: ``(C, C)`` numbers of images; rows are true classes, columns predicted ones.
        classes: C names; very long ones are cut with an ellipsis.
        title: Comes before the overall accuracy in the title line.

    Returns:
        ``(H', W', 3)`` picture on white.

    Raises:
        ValueError: ``counts`` is not square, or does not match ``classes``.
    """
    n = len(classes)
    if not n or counts.shape != (n, n):
        raise ValueError(f"counts: want shape ({n}, {n}) for {n} classes, got {counts.shape}")
    support = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, support, out=np.full(counts.shape, np.nan), where=support > 0)
    recalls = shares.diagonal()[:, None]
    recall_texts = [["n/a" if np.isnan(recall) else f"{recall:.1%}"] for recall in recalls[:, 0]]

    cell = min(200, max(20, 960 // n))
    font, axis_font = typeface(min(26, cell * 7 // 10)), typeface(28)
    names = [fitted(name, font, 14 * font.size) for name in classes]
    row_names = _row_names(names, font, cell)
    column_names = _column_names(names, font, cell, overhang=row_names.width)
    matrix = _blocks(shares, counts.astype(str).tolist(), _count_font(counts, cell), cell, cell)
    recall_column = _blocks(recalls, recall_texts, font, ceil(font.getlength("100.0%") + font.size), cell)
    true_axis = _turned("true", axis_font, 90)

    left, top = true_axis.width + row_names.width + 2 * _GAP, _height("recall", font) + _GAP // 2
    right, bottom = left + matrix.width + _GAP, top + matrix.height + _GAP
    axis_top = bottom + column_names.height + _GAP
    body = Image.new("RGB", (right + recall_column.width, axis_top + _height("predicted", axis_font)), _PAPER)
    body.paste(_MUTED, (0, top + (matrix.height - true_axis.height) // 2), true_axis)
    body.paste(row_names, (left - _GAP - row_names.width, top))
    body.paste(matrix, (left, top))
    body.paste(recall_column, (right, top))
    body.paste(column_names, (left - row_names.width, bottom))
    draw = ImageDraw.Draw(body)
    _write(draw, (right + recall_column.width / 2, 0), "recall", font, anchor="ma", fill=_MUTED)
    _write(draw, (left + matrix.width / 2, axis_top), "predicted", axis_font, anchor="ma", fill=_MUTED)

    hits, total = int(np.trace(counts)), int(counts.sum())
    accuracy = f"{hits / total:.1%} ({hits:,} of {total:,})" if total else "n/a"
    return _page(body, f"{title}: accuracy {accuracy}", typeface(34), margin=40, widen_to=640)


def _page(body: Image.Image, title: str, font: FreeTypeFont, *, margin: int, widen_to: int) -> Pixels:
    """Body under its title; a narrow page widens for the title up to `widen_to`, then wraps it."""
    width = max(body.width, min(widen_to, ceil(font.getlength(title))))
    title = _wrapped(title, font, width, breaks=_SPACES)
    top = margin + _height(title, font) + margin // 2
    page = Image.new("RGB", (width + 2 * margin, top + body.height + margin), _PAPER)
    _write(ImageDraw.Draw(page), (margin, margin), title, font, anchor="la")
    page.paste(body, (margin, top))
    return np.array(page)


def _tile(image: NDArray[np.float32], cell: int) -> Image.Image:
    """One (1 or 3, H, W) image in [0, 1], enlarged to fit a square; whole multiples keep hard pixel edges."""
    pixels = (np.clip(image, 0, 1) * 255).round().astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    method = Image.Resampling.BICUBIC if cell % max(picture.size) else Image.Resampling.NEAREST
    return ImageOps.contain(picture, (cell, cell), method)


def _blocks(
    shares: NDArray[np.float64],
    texts: Sequence[Sequence[str]],
    font: FreeTypeFont | None,
    width: int,
    height: int,
) -> Image.Image:
    """A block for each share, NaN in grey, with its text where there is a font."""
    colours = np.stack([np.interp(shares, _BLUES_AT, channel) for channel in _BLUES.T], axis=-1)
    colours = np.where(np.isnan(shares)[..., None], _NO_DATA, colours.round()).astype(np.uint8)
    pixels = colours.repeat(height, axis=0).repeat(width, axis=1)
    pixels[height - 1 :: height] = pixels[:, width - 1 :: width] = _PAPER
    picture = Image.fromarray(pixels)
    if font is None:
        return picture
    draw = ImageDraw.Draw(picture)
    for (row, column), share in np.ndenumerate(shares):
        fill = _PAPER if share > _WHITE_TEXT_FROM else _INK if share > 0 else _MUTED
        at = ((column + 0.5) * width, (row + 0.5) * height)
        _write(draw, at, texts[row][column], font, anchor="mm", fill=fill)
    return picture


def _count_font(counts: NDArray[np.int64], cell: int) -> FreeTypeFont | None:
    """The font in which the widest count fits a cell, or None if that is too small to read."""
    size = int(min(26, 0.7 * cell, 80 * cell / typeface(100).getlength(str(counts.max()))))
    return typeface(size) if size >= _SMALLEST_COUNT else None


def _row_names(names: Sequence[str], font: FreeTypeFont, cell: int) -> Image.Image:
    width = ceil(max(map(font.getlength, names))) + 2 * _BLEED
    picture = Image.new("RGB", (width, len(names) * cell), _PAPER)
    draw = ImageDraw.Draw(picture)
    for row, name in enumerate(names):
        _write(draw, (width - _BLEED, (row + 0.5) * cell), name, font, anchor="rm")
    return picture


def _column_names(names: Sequence[str], font: FreeTypeFont, cell: int, *, overhang: int) -> Image.Image:
    """Names under their columns: level if they fit, else slanted, else upright.

    A slanted name reaches to the left of its column by less than its own length, `overhang` at most.
    """
    level = max(map(font.getlength, names)) < cell - _GAP
    angle = 0 if level else 45 if cell > 1.5 * font.size else 90
    masks = [_turned(name, font, angle) for name in names]
    picture = Image.new("RGB", (overhang + len(names) * cell, max(mask.height for mask in masks)), _PAPER)
    for column, (name, mask) in enumerate(zip(names, masks, strict=True)):
        end_from_centre = cos(radians(angle)) * font.getlength(name) / 2 if angle else 0
        x = overhang + (column + 0.5) * cell - mask.width / 2 - end_from_centre
        picture.paste(_INK, (round(x), 0), mask)
    return picture


def _turned(text: str, font: FreeTypeFont, angle: int) -> Image.Image:
    """Mask of a line of text, turned anticlockwise by degrees."""
    mask = Image.new("L", (ceil(font.getlength(text)) + 2 * _BLEED, _height(text, font)))
    ImageDraw.Draw(mask).text((_BLEED, 0), text, 255, font)
    return mask.rotate(angle, Image.Resampling.BICUBIC, expand=True)


def _write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    font: FreeTypeFont,
    *,
    anchor: str,
    fill: Colour = _INK,
) -> None:
    align = "center" if anchor.startswith("m") else "left"
    draw.text(at, text, fill, font, anchor, spacing=font.size * 0.2, align=align)


def _height(text: str, font: FreeTypeFont) -> int:
    return ceil((text.count("\n") + 1) * 1.2 * font.size)


def _wrapped(text: str, font: FreeTypeFont, width: float, *, breaks: str, lines: float = inf) -> str:
    """Text broken into lines that fit the width; a line too long for it ends in an ellipsis."""
    wrapped = [""]
    for part in re.split(breaks, text):
        if len(wrapped) < lines and wrapped[-1] and font.getlength((wrapped[-1] + part).rstrip()) > width:
            wrapped.append("")
        wrapped[-1] += part
    return "\n".join(fitted(line.strip(), font, width) for line in wrapped)


def fitted(text: str, font: FreeTypeFont, width: float) -> str:
    """The text, cut with an ellipsis where it is wider than so many pixels."""
    if font.getlength(text) <= width:
        return text
    text = text[:300]
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


@lru_cache
def typeface(size: int) -> FreeTypeFont:
    """Pillow's own, in so many pixels."""
    return cast(FreeTypeFont, ImageFont.load_default(size))
