"""Renews ``recorded/*.json`` from real runs: ``python tests/diagnose/record.py slow-decoder slow-optimizer ...``.

The runs are the cells of ``strobe.validation.accuracy``, each with a known cause injected. A file holds the command,
the cause, and what the run left: its ``summary.json`` and its configuration. Do it where nothing else runs.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from strobe.diagnose import calibrated
from strobe.diagnose.rank import conclude
from strobe.records.run import load_record
from strobe.validation.accuracy_cells import cells

HERE = Path(__file__).parent
WIDE = 120  # characters of a line
ROOT = HERE.parents[1]


def record(name: str, folder: Path) -> None:
    """Train the cell and keep its record."""
    (cell,) = (cell for cell in cells() if cell.name == name)
    command = ["python", "train.py", *cell.overrides]
    subprocess.run([sys.executable, *command[1:], f"hydra.run.dir={folder}"], cwd=ROOT, check=True)
    keep(name, cell.cause or "nothing", shlex.join(command), folder)


def keep(name: str, injected: str, command: str, run: Path) -> None:
    """Write ``recorded/<name>.json``."""
    found = load_record(run)
    calibrated.calibration = lambda *_: None  # type: ignore[assignment]  # as in all tests
    conclude(found.summary, found.config, run)
    found.summary["environment"]["host"] = "recorded"
    found.summary["overrides"] = [text for text in found.summary["overrides"] if not text.startswith("hydra.")]
    content = {"command": command, "injected": injected, "summary": found.summary, "config": found.config}
    (HERE / "recorded" / f"{name}.json").write_text(written(content) + "\n")


def written(value: Any, depth: int = 0, before: int = 0) -> str:
    """JSON in which what fits into a line stands in one; so many characters stand ``before`` it."""
    whole, inner = json.dumps(value), "\n" + " " * (depth + 1)
    if not isinstance(value, dict | list) or depth + before + len(whole) < WIDE:
        return whole
    if isinstance(value, list):
        return f"[{inner}{f',{inner}'.join(written(one, depth + 1) for one in value)}\n{' ' * depth}]"
    parts = (f"{json.dumps(key)}: {written(one, depth + 1, len(key) + 4)}" for key, one in value.items())
    return f"{{{inner}{f',{inner}'.join(parts)}\n{' ' * depth}}}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for chosen in sys.argv[1:]:
            record(chosen, Path(scratch) / chosen)
