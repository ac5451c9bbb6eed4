"""Where things lie: the repository, and the data that may lie beside it."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("STROBE_DATA", ROOT.parent / "shared" / "data"))
