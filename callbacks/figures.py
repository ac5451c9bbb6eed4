"""What pictures share: Matplotlib figures in pixels, without its global state, and the phases' colours."""

import logging
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from .columns import PHASES

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Each stands out on white, and words in black or white on it; pages have them, too.
_COLOURS = ("#C4123F", "#C98409", "#8F5A2B", "#174F94", "#4A9AD0", "#0C7F5F", "#A3458C", "#868D96")
PHASE_COLOURS = dict(zip(PHASES, _COLOURS, strict=True))
INK, FAINT, RULE, EMPTY, PAPER = "#222222", "#6B6B6B", "#E2E2E2", "#F4F4F4", "#FFFFFF"
_MARGIN, _WIDTH = 24, 1150


def blank(width: float, height: float) -> "Figure":
    """A figure of a size in pixels, which are also the points of its fonts; nothing is cut off at its edges."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it reports its font cache
    from matplotlib.figure import Figure

    return Figure((width / 72, height / 72), dpi=72)


def pixels(figure: "Figure") -> "NDArray[np.uint8]":
    """The figure's pixels, RGB ``(height, width, 3)``, with a margin around the drawing."""
    import numpy as np
    from matplotlib.transforms import Bbox

    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # letters that no font has are drawn as boxes
        low, high = figure.get_tightbbox().get_points() * 72
        low, high = np.floor(low) - _MARGIN, np.ceil(high) + _MARGIN
        figure.savefig(buffer, format="rgba", bbox_inches=Bbox([low / 72, (high + 0.01) / 72]))
    width, height = (high - low).astype(int)
    return np.frombuffer(buffer.getvalue(), np.uint8).reshape(height, width, 4)[..., :3].copy()


def plain(text: str, most: int) -> str:
    """Text of limited length; dollar signs start no formula."""
    return (text if len(text) <= most else f"{text[: most - 1]}…").replace("$", r"\$")


class Sheet:
    """A figure, 1,150 pixels wide, that is filled downwards."""

    def __init__(self) -> None:
        self.figure = blank(_WIDTH, 100)
        self._y = 0.0  # where the next thing goes, in heights of this figure, downwards

    def line(self, text: str, size: int, colour: str = INK) -> None:
        """A line of text."""
        self._y -= 0.1
        self.figure.text(0, self._y, plain(text, int(1.8 * _WIDTH / size)), fontsize=size, color=colour, va="top")
        self._y -= 0.014 * size

    def key(self, entries: Sequence[tuple[str, str]]) -> None:
        """Coloured squares with their texts, six in a row."""
        from matplotlib.patches import Patch

        names = [plain(text, 36) for text, _ in entries]
        columns = max(min(6, _WIDTH // (10 * max(map(len, names)) + 40)), 1)
        self.figure.legend(
            [Patch(color=colour) for _, colour in entries],
            names,
            loc="upper left",
            bbox_to_anchor=(0, self._y - 0.05),
            ncols=columns,
            frameon=False,
            fontsize=15,
            labelcolor=INK,
            handlelength=1,
            handleheight=1,
            borderpad=0,
            borderaxespad=0,
        )
        self._y -= 0.23 * -(-len(names) // columns) + 0.1

    def axes(self, height: int, left: int = 0, right: int = 0) -> "Axes":
        """Axes without a frame, so many pixels high and away from the sides."""
        axes = self.figure.add_axes((left / _WIDTH, self._y - height / 100, 1 - (left + right) / _WIDTH, height / 100))
        axes.set_frame_on(False)
        axes.tick_params(length=0, labelsize=14, labelcolor=FAINT)
        self._y -= height / 100 + 0.2
        return axes

    def rows(
        self, height: int, end: float, texts: Sequence[tuple[str, str]], *, right: int = 90, unit: str = ""
    ) -> "Axes":
        """Axes with rows of a height, downwards from 0; texts left and right of each, rules from 0 to `end`."""
        self._y -= 0.2
        axes = self.axes(height * len(texts), left=125, right=right)
        axes.set(xlim=(0, end), ylim=(len(texts) - 0.5, -0.5))
        axes.set_yticks(range(len(texts)), [plain(name, 14) for name, _ in texts], fontsize=15, color=INK)
        for row, (_, text) in enumerate(texts):
            beside = axes.get_yaxis_transform()
            axes.text(1.01, row, text, fontsize=15, color=INK, va="center_baseline", transform=beside)
        axes.xaxis.tick_top()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}{unit if not value else ''}")
        axes.grid(axis="x", color=RULE, linewidth=1)
        axes.set_axisbelow(True)
        return axes
