"""A real server on 127.0.0.1 that serves one file and can misbehave."""

import contextlib
import hashlib
import io
import random
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest


def zipped(members: Mapping[Any, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name) if isinstance(name, str) else name  # dated 1980 in each process
            archive.writestr(info, content, method)
    return buffer.getvalue()


FILES = {f"{name}/{name}_{i}.tif": bytes([i]) * 99 for name in ("Forest", "River") for i in range(3)}
FILES["noise.bin"] = random.Random(0).randbytes(200_000)
PAYLOAD = zipped({f"EuroSAT_MS/{name}": content for name, content in FILES.items()})
MD5 = hashlib.md5(PAYLOAD).hexdigest()
CHECKSUM = f"md5:{MD5}"


class Server(ThreadingHTTPServer):
    """Serves ``payload``; the attributes say how."""

    daemon_threads = False  # so that closing waits for the handlers

    def __init__(self, payload: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.base}/EuroSAT_MS.zip"
        self.payload = payload
        self.status = 200
        self.ranges = True
        self.shift = 0  # added to the start of a range that was asked for
        self.chunked = False
        self.stop_after: int | None = None
        self.then: Callable[[socket.socket], object] = lambda connection: None
        self.asked: list[str | None] = []
        self.sent = 0
        self.released = threading.Event()

    def hang(self, connection: socket.socket) -> None:
        self.released.wait(10)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        server, asked = self.server, self.headers["Range"]
        server.asked.append(asked)
        total = len(server.payload)
        start = 0
        if server.status != 200:
            return self.send_error(server.status)
        if asked and server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-")) + server.shift
            if start >= total:
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        else:
            self.send_response(200)
        body = server.payload[start:][: server.stop_after]
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            end = b"" if server.stop_after else b"0\r\n\r\n"
            body = b"%x\r\n%b\r\n" % (len(body), body) + end
        else:
            self.send_header("Content-Length", str(total - start))
        self.end_headers()
        server.sent += len(body)  # before the client can have them all
        with contextlib.suppress(ConnectionError):  # the client may leave at any time
            self.wfile.write(body)
            if server.stop_after is not None:
                server.then(self.connection)
        return None


@contextlib.contextmanager
def serving(payload: bytes = PAYLOAD) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, Server(payload) as server:
        patch.setenv("no_proxy", "*")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where connections are refused."""
    with pytest.MonkeyPatch.context() as patch, socket.socket() as bound:  # bound and not listening
        patch.setenv("no_proxy", "*")
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def prepare(url: str, folder: Path, barrier: Barrier) -> None:
    """Download and extract, as each of two ranks does that start at once."""
    from strobe.app.data.download import extract, fetch  # no torch: a process that is spawned begins soon
    from strobe.process.locks import locked

    barrier.wait(300)
    with locked(folder / "locks" / ".lock"):
        archive = fetch(url, folder / "EuroSAT_MS.zip", CHECKSUM)
        if not (folder / "EuroSAT_MS").exists():
            time.sleep(0.1)  # time for the other to be in the way
            extract(archive, folder / "EuroSAT_MS")
