"""``train.py`` with a list of the tiles that each rank reads in training, written to the folder PROBE.

When a rank has read KILL tiles, all ranks are killed. The second rank sleeps NAP seconds at each tile.
Afterwards two alternatives are measured, and the second rank's memory is too small for a model with batches of 8.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

from strobe.app.loaders.base import Batch, TileData
from strobe.app.run import after_training, ceilings
from strobe.app.run.train import Run
from strobe.diagnose.candidates import Candidate

RANK = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
read, build_model, end = TileData._item, ceilings.build_model, Run.end


def recorded(self: TileData, index: int, content: bytes | None) -> Batch:
    with Path(os.environ["PROBE"], f"rank{RANK}.txt").open("a") as file:
        if file.tell() and int(os.environ.get("KILL", "-1")) == len(Path(file.name).read_text().split()):
            os.killpg(0, signal.SIGKILL)
        file.write(self.source.path(index) + "\n")
    time.sleep(float(os.environ.get("NAP", "0")) * (RANK == "1"))
    return read(self, index, content)


def ended(self: Run, *given: Any) -> None:
    TileData._item = read
    end(self, *given)


def built(cfg: Any, data: Any) -> Any:
    if RANK == "1" and data.batch_size == 8:
        raise RuntimeError("out of memory")
    return build_model(cfg, data)


TileData._item = recorded
Run.end, ceilings.build_model = ended, built
after_training.candidates = lambda _: [
    Candidate("model", ("data.batch_size=8",)),
    Candidate("model", ("data.batch_size=6",)),
]
application = Path(__file__).parents[2] / "train.py"
# Not by runpy, which would change sys.argv[0]: Lightning starts the other ranks with that.
exec(compile(application.read_text(), application, "exec"), {"__name__": "__main__"})
