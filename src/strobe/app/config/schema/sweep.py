"""Keys of a sweep as a whole, ``python train.py -m``; a cell of it does not get them."""

from dataclasses import dataclass

from strobe.app.config.schema import knob


@dataclass
class SweepConfig:
    """How ``hydra/launcher=processes`` measures the cells of a sweep."""

    repeats: int = knob(1, min=1, max=1000)  # runs of each cell: each round visits all cells, in another order
    seed: int = knob(0, min=0)  # of these orders
    timeout_seconds: float | None = knob(None, above=0)  # of one run, which has failed then
