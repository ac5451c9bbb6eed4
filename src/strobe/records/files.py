"""Files that are whole or not there."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` at the end of the block, and nothing if that raises."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder, less those that links point to."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all; numbers that are not finite become null."""
    with whole(path) as partial:
        partial.write_text(json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
