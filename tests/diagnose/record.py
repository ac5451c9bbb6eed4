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

from strobe.records.run import load_record
from strobe.validation.accuracy_cells import cells

HERE = Path(__file__).parent
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
    found.summary["environment"]["host"] = "recorded"
    found.summary["overrides"] = [text for text in found.summary["overrides"] if not text.startswith("hydra.")]
    content = {"command": command, "injected": injected, "summary": found.summary, "config": found.config}
    (HERE / "recorded" / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for chosen in sys.argv[1:]:
            record(chosen, Path(scratch) / chosen)
