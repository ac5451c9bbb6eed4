"""Files that appear whole or not at all."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BEGUN = "begun.json"  # a run's record as far as it is known when training begins; gone when the record is written


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path that becomes ``path`` at the end of the block, or is removed if the block raises."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def statuses(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each file below a folder, with its status; links are not followed, files that vanish are left out."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(OSError):
                yield path, path.lstat()


def size_of(*paths: Path) -> int:
    """Bytes of files, and of all files in folders; targets of links and missing files count nothing."""
    files = sum(path.lstat().st_size for path in paths if path.is_file())
    return files + sum(status.st_size for path in paths for _, status in statuses(path))


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all; infinities and NaN become null."""
    with whole(path) as partial:
        partial.write_text(json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
