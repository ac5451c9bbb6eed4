"""Objects in storage: listed once, then fetched many at a time, in whichever process asks."""

import errno
import hashlib
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strobe.app.storage.cache import Cache
from strobe.errors import DataError

TRIES = 8  # of one request, within the time that it has
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between tries, doubled each time
LISTERS = 16  # folders listed at once
INSTALL = "make setup installs it, or: pip install '.[storage]'"
OPEN = ", or AWS_SKIP_SIGNATURE=true where all may read"
AGAIN = "the command that wrote it (strobe pack --shards) writes it again"
REFUSED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}


@dataclass(frozen=True)
class Listed:
    """Objects below a root; of a whole root sorted by key."""

    keys: list[str]  # below the root
    sizes: NDArray[np.int64]  # bytes
    versions: NDArray[np.uint64]  # a digest of each one's ETag


@dataclass(frozen=True)
class Contents:
    """Whole objects, one behind the other."""

    data: Tensor  # (B,) uint8
    ends: Tensor  # (N,) int64: where each ends in it

    def __getitem__(self, place: int) -> bytes:
        start = int(self.ends[place - 1]) if place else 0
        return bytes(self.data.numpy()[start : int(self.ends[place])].data)


def part(contents: Contents | None, place: int) -> bytes | None:
    """One object; None where there are none, but files on the disk."""
    return None if contents is None else contents[place]


class Storage:
    """What lies below ``root``, such as ``s3://bucket/folder``; ``endpoint`` is the address of another server than AWS.

    Credentials come from the environment, and no message repeats them. ``requests`` are sent at once, by each process.
    A request that fails is sent again, after growing pauses, for ``timeout_seconds``. Fetched objects are kept in the
    folder ``cache``, up to ``cache_gb``. A copy in another process opens its own connections; after a fork it refuses
    to, because the client would wait forever.
    """

    def __init__(
        self,
        root: str,
        *,
        endpoint: str | None,
        requests: int = 128,
        timeout_seconds: float = 60.0,
        cache: str | None = None,
        cache_gb: float = 50.0,
    ) -> None:
        self.root = root.rstrip("/")
        self.endpoint = endpoint
        self.requests = requests
        self.timeout_seconds = timeout_seconds
        self.cache = Cache(Path(cache), self.root, round(cache_gb * 1e9)) if cache else None
        self._open: tuple[int, Any, ThreadPoolExecutor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": None}

    @property
    def reach(self) -> dict[str, Any]:
        """What another root on the same server is reached with."""
        return {name: getattr(self, name) for name in ("endpoint", "requests", "timeout_seconds")}

    def listed(self) -> Listed:
        """All objects below the root, for which the cache makes room; each folder is listed by a request of its own."""
        store, _ = self._client()
        with self._explained(self.root):
            top = store.list_with_delimiter()
            with ThreadPoolExecutor(LISTERS) as pool:
                below = pool.map(lambda prefix: _needed(store.list(prefix)), top["common_prefixes"])
                parts = [_needed([top["objects"]]), *below]
        keys = [key for part in parts for key in part.keys]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        sizes, versions = (np.concatenate(of) for of in zip(*((one.sizes, one.versions) for one in parts), strict=True))
        listed = Listed([keys[place] for place in order], sizes[order], versions[order])
        if self.cache is not None:
            names = map(_name, listed.keys, listed.versions.tolist())
            self.cache.prepare(int(listed.sizes.sum()), lambda: set(names))
        return listed

    def fetch(
        self, keys: Sequence[str], sizes: Sequence[int], versions: Sequence[int], *, cached: bool = True
    ) -> Contents:
        """These objects, which were listed with these sizes and versions; ``cached``: the cache may have them.

        Raises a :class:`DataError` that names the first object that cannot be had as it was listed.
        """
        _, pool = self._client()
        ends = np.cumsum(sizes, dtype=np.int64)
        data = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8)
        room: memoryview = data.numpy().data
        parts = (room[end - size : end] for end, size in zip(ends.tolist(), sizes, strict=True))
        list(pool.map(self._cached if cached and self.cache else self._get, keys, versions, parts))
        return Contents(data, torch.from_numpy(ends))

    def fetch_parts(self, parts: Sequence[tuple[str, int, memoryview]]) -> None:
        """Fill each buffer with the bytes of an object from a place on; raises as :meth:`fetch`."""
        _, pool = self._client()
        list(pool.map(lambda part: self._part(*part), parts))

    def sizes(self) -> dict[str, int]:
        """The bytes of each object below the root, listed anew."""
        listed = self.listed()
        return dict(zip(listed.keys, listed.sizes.tolist(), strict=True))

    def write(self, key: str, content: bytes) -> None:
        """Write an object below the root."""
        store, _ = self._client()
        with self._explained(self.address(key)):
            store.put(key, content)

    def read(self, key: str) -> bytes:
        """What an object holds, even one that the listing lacks; raises FileNotFoundError where it does not exist."""
        store, _ = self._client()
        with self._explained(self.address(key)), suppress(FileNotFoundError):
            return bytes(store.get(key).bytes())
        raise FileNotFoundError(errno.ENOENT, f"{self.address(key)} is missing")

    def address(self, key: str) -> str:
        """The whole address of an object."""
        return f"{self.root}/{key}"

    def _cached(self, key: str, version: int, into: memoryview) -> None:
        assert self.cache is not None
        name = _name(key, version)
        if not self.cache.read(name, into):
            self._get(key, version, into)
            self.cache.keep(name, into)

    def _get(self, key: str, version: int, into: memoryview) -> None:
        store, _ = self._client()
        address = self.address(key)
        with self._explained(address):
            answer = store.get(key)
            content = answer.bytes()
        if len(content) != len(into):
            raise DataError(
                f"{address} has {len(content)} bytes where {len(into)} were listed: it is truncated, or was replaced "
                "during the run; upload it again, or start again"
            )
        if _digest(answer.meta["e_tag"] or "") != version:
            raise DataError(f"{address} was replaced during the run; start again, so that each epoch has the same data")
        into[:] = memoryview(content)

    def _part(self, key: str, start: int, into: memoryview) -> None:
        store, _ = self._client()
        address, end = self.address(key), start + len(into)
        with self._explained(address):
            try:
                content = store.get_range(key, start=start, length=len(into))
                size = start + len(content)
            except Exception:  # servers answer differently where the whole range is beyond the end
                if (size := store.head(key)["size"]) >= end:
                    raise
        if size < end:
            raise DataError(f"{address} has {size} bytes where at least {end} were expected: it is truncated; {AGAIN}")
        into[:] = memoryview(content)

    def _client(self) -> tuple[Any, ThreadPoolExecutor]:
        """The client and the threads of this process."""
        if self._open is None:
            self._open = os.getpid(), self._store(), ThreadPoolExecutor(self.requests, thread_name_prefix="storage")
        process, store, pool = self._open
        if process != os.getpid():
            raise DataError(
                f"{self.root} cannot be read in a forked process, where its client would wait forever; "
                "set engine.multiprocessing_context=spawn, or engine=litdata"
            )
        return store, pool

    def _store(self) -> Any:
        try:
            from obstore.store import from_url
        except ImportError as error:
            raise DataError(f"data.root={self.root} needs LitData and its client ({error}); {INSTALL}") from None
        limit = timedelta(seconds=self.timeout_seconds)
        options: dict[str, Any] = {
            "client_options": {"allow_http": True, "timeout": limit, "connect_timeout": limit / 4},
            "retry_config": {
                "max_retries": TRIES,
                "retry_timeout": limit,
                "backoff": {
                    "init_backoff": timedelta(seconds=FIRST_PAUSE),
                    "max_backoff": timedelta(seconds=LONGEST_PAUSE),
                    "base": 2,
                },
            },
        }
        if self.endpoint:
            options["endpoint"] = self.endpoint
        with self._explained(self.root):
            return from_url(self.root, **options)

    @contextmanager
    def _explained(self, address: str) -> Iterator[None]:
        """Turns the client's errors into one sentence, without their text: S3 repeats in it what was signed."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            raise DataError(self._sentence(address, error)) from None

    def _sentence(self, address: str, error: Exception) -> str:
        text = str(error).partition("\nDebug source")[0]
        code = match[1] if (match := re.search(r"<Code>(\w+)</Code>", text)) else ""
        status = match[1] if (match := re.search(r"status code: (\d+)", text)) else ""
        where = f"data.endpoint={self.endpoint}" if self.endpoint else "the network"
        if "/latest/" in text:  # the client tried the metadata of an AWS machine
            return f"{address}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY{OPEN}"
        if "Account must be specified" in text:
            return f"{address}: there is no account; set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
        if code in REFUSED or status in ("401", "403"):
            return (
                f"{address}: the storage refuses these credentials ({code or status}); check AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and what they may read"
            )
        if code == "NoSuchBucket":
            return f"{address}: there is no such bucket; check data.root, and {where}"
        if isinstance(error, FileNotFoundError) or status == "404":
            return f"{address} is missing, although it was listed; put it back, or start again without it"
        reason = code or (f"status {status}" if status else "")
        if not reason:
            late = "kind: Timeout" in str(error) or "timed out" in text
            reason = "no answer in time" if late else "the connection failed"
        return (
            f"{address} cannot be fetched: {reason}, after tries for up to {self.timeout_seconds:g} s; check {where}, "
            "or give data.timeout_seconds=SECONDS"
        )


def _needed(pages: Iterable[Sequence[Any]]) -> Listed:
    """What is kept of pages of a listing, in their order."""
    keys, sizes, versions = list[str](), array("q"), array("Q")
    for one in chain.from_iterable(pages):
        keys.append(one["path"])
        sizes.append(one["size"])
        versions.append(_digest(one["e_tag"] or ""))
    return Listed(keys, np.array(sizes, dtype=np.int64), np.array(versions, dtype=np.uint64))


def _name(key: str, version: int) -> str:
    """What an object of a root is called in the cache."""
    return hashlib.blake2b(f"{version:x} {key}".encode(), digest_size=12).hexdigest()


def _digest(tag: str) -> int:
    return int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=8).digest())
