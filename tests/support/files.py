"""What lies in folders, and what is put there."""

import os
import stat
from pathlib import Path


def plant(folder: Path, files: dict[str, bytes]) -> None:
    """The opposite of ``tree``."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file and folder below, with its size and when it was written, in nanoseconds."""
    found = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    return {str(path.relative_to(folder)): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


DAMAGES = ("truncated", "end missing", "header only", "empty", "text", "missing", "a folder")


def damaged(path: Path, content: bytes, kind: str) -> str:
    """A file that should hold ``content``, and does not."""
    held = {
        "truncated": content[: len(content) // 2],
        "end missing": content[:-60],
        "header only": content[:100],
        "empty": b"",
        "text": b"This is not an image.\n" * 50,
    }
    if kind in held:
        path.write_bytes(held[kind])
    elif kind == "a folder":
        path.mkdir()
    return str(path)


NO_FILES = ("pipe", "socket", "link to nothing")


def no_file(path: Path, kind: str) -> Path:
    """Something that is called like a file; to open a pipe waits until somebody writes."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o600)
        case "link to nothing":
            path.symlink_to("nothing")
    return path
