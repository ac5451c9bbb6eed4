"""Which other files of a data set cannot be read, once training has met one."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from strobe.app.data.base import ImageData
from strobe.app.loaders.base import UNREADABLE
from strobe.app.loaders.sources import FileSource
from strobe.errors import DataError
from strobe.present.format import counted

log = logging.getLogger(__name__)

SECONDS = 10.0  # to look for others
MOST = 5  # that are named


@contextmanager
def others_named(data: ImageData) -> Iterator[None]:
    """An error of an unreadable file on the disk, raised within, also says which others there are."""
    try:
        yield
    except DataError as error:
        if UNREADABLE in str(error) and (more := _others(data, str(error))):
            raise DataError(f"{error}; {more}") from error
        raise


def _others(data: ImageData, known: str) -> str:
    """What reading the set's files for some seconds finds, but the one that ``known`` tells of; empty if in storage."""
    sources = {split: source for split, source in data.found.items() if isinstance(source, FileSource)}
    if not sources or any(source.objects is not None for source in sources.values()):
        return ""
    log.info("A file cannot be read: looking for others, up to %.0f s", SECONDS)
    tried, faulty, ends = set[str](), list[str](), time.monotonic() + SECONDS
    for split, source in sources.items():
        for index in range(len(source)):
            if time.monotonic() > ends:
                break
            if (path := source.path(index)) not in tried:
                tried.add(path)
                try:
                    data.datasets[split][index]
                except DataError:
                    faulty += [path] * (not known.startswith(f"{path} "))
    whole = len(set().union(*(source.indices.tolist() for source in sources.values())))
    of = f"{counted(len(tried), 'file')}{f' (of {whole:,})' * (len(tried) < whole)} tried"
    if not faulty:
        return f"no other of {of} is unreadable"
    rest = f" and {len(faulty) - MOST:,} more" * (len(faulty) > MOST)
    return f"{len(faulty):,} more of {of} cannot be read: {', '.join(sorted(faulty)[:MOST])}{rest}"
