"""What a listing keeps of a root's objects, and how one of them is found."""

import os
import tracemalloc
from collections.abc import Iterator
from typing import Any

from strobe.app.storage.folder import RemoteFolder
from strobe.app.storage.objects import Storage

FOLDERS, EACH, PAGE = 20, 1000, 50
MOST = 300  # bytes of an object at the peak, of which the key takes a hundred


class Many:
    """A client that lists many objects in folders, the last one first."""

    def list_with_delimiter(self) -> dict[str, Any]:
        return {
            "objects": [],
            "common_prefixes": [f"train/folder-{number:02d}/" for number in reversed(range(FOLDERS))],
        }

    def list(self, prefix: str) -> Iterator[Any]:
        for page in range(0, EACH, PAGE):
            yield [
                {
                    "path": f"{prefix}image-of-the-training-set-{number:06d}.jpg",
                    "size": 1000 + number,
                    "e_tag": f'"{number:032x}"',
                    "last_modified": f"2026-01-01T00:00:{number:05d}",
                }
                for number in range(page, page + PAGE)
            ]


def test_of_each_object_little_is_kept_while_many_are_listed() -> None:
    storage = Storage("s3://bucket/many", endpoint=None)
    storage._open = os.getpid(), Many(), None  # type: ignore[assignment]
    tracemalloc.start()
    try:
        listed = storage.listed()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST * FOLDERS * EACH
    assert listed.keys == sorted(listed.keys)
    assert listed.sizes.tolist() == [1000 + int(key[-10:-4]) for key in listed.keys]
    chosen = [listed.keys[place] for place in (12345, 7)]
    found = RemoteFolder(storage, listed).objects([storage.address(key) for key in chosen])
    assert found.sizes.tolist() == listed.sizes[[12345, 7]].tolist()
    assert found.versions.tolist() == listed.versions[[12345, 7]].tolist()
