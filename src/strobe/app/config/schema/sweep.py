"""Keys of a sweep as a whole, ``python train.py -m``; a cell of it does not get them."""

from dataclasses import dataclass

from strobe.app.config.schema import knob


@dataclass
class SweepConfig:
    """How ``hydra/launcher=processes`` measures the cells of a sweep."""

    repeats: int = knob(1, min=1, max=1000)  # runs of each cell: each round visits all cells, in another order
    seed: int = knob(0, min=0)  # of these orders
    timeout_seconds: float | None = knob(None, above=0)  # of one run, which has failed then
    baseline: str | None = None  # what cells are compared with: one of them, or another sweep; null: the first cell
    fail_if_slower: str | None = None  # such as 5%: exit with 0 only if each cell is shown to lose less than that
