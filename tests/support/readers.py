"""Those who read traces: a real TensorBoard with its profiler plugin on the loopback, and what a viewer demands."""

import gzip
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

CPU_RANGES = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "runtime", "python_function"}


@contextmanager
def board(logdir: Path) -> Iterator[str]:
    """The address of a TensorBoard on a folder, for as long as it is needed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir)]
    command += ["--host=127.0.0.1", f"--port={port}", "--load_fast=false"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=os.environ | {"TORCH_PROFILER_START_METHOD": "fork"}, **quiet) as server:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def ask(url: str, ready: Callable[[Any], bool] = bool, seconds: float = 300) -> Any:
    """Ask until the answer is ready: TensorBoard reads its files in the background."""
    deadline, problem = time.monotonic() + seconds, "not what is waited for"
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                text = answer.read()
                packed = answer.headers.get("Content-Encoding") == "gzip"
            content = json.loads(gzip.decompress(text) if packed else text)
            if ready(content):
                return content
        except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError) as error:
            problem = str(error)
        assert time.monotonic() < deadline, f"{url} was not ready in {seconds} s: {problem}"
        time.sleep(0.2)


@dataclass(frozen=True)
class Plugin:
    """What the profiler plugin says of one run: a folder with traces, named by its path below the logdir.

    Ask for one worker (`<worker>` of the file's name) and one of its traces, the spans "1", "2" ... in order of time.
    """

    address: str
    run: str

    def workers(self) -> list[str]:
        """Waits until all traces are read."""
        self._ask("runs", ready=lambda answer: self.run in answer["runs"] and not answer["loading"], run=None)
        return list(self._ask("workers", view="Overview"))

    def spans(self, worker: str) -> list[str]:
        return self._ask("spans", ready=lambda _: True, worker=worker) or []

    def shares(self, worker: str, span: str = "1") -> dict[str, float]:
        """Percent of the average step by kind: Runtime, DataLoader, CPU Exec, Other ..."""
        average = self.overview(worker, span)["performance"][0]
        return {part["name"]: part["extra"] for part in average["children"]}

    def steps(self, worker: str, span: str = "1") -> list[str]:
        return [row[0] for row in self.overview(worker, span)["steps"]["rows"]]

    def step_us(self, worker: str, span: str = "1") -> float:
        return float(self.overview(worker, span)["performance"][0]["value"])

    def overview(self, worker: str, span: str = "1") -> dict[str, Any]:
        return dict(self._ask("overview", worker=worker, span=span))

    def operators(self, worker: str, span: str = "1") -> dict[str, dict[str, Any]]:
        """Rows of the operator table by name; durations in microseconds."""
        answer = self._ask("operation/table", worker=worker, span=span, group_by="Operation")
        return {row["name"]: row for row in answer["data"]}

    def kernels(self, worker: str, span: str = "1") -> list[dict[str, Any]]:
        """Rows of the kernel table, by the names of its columns."""
        table = self._ask("kernel/table", worker=worker, span=span, group_by="KernelNameAndOpName")["data"]
        names = [column["name"] for column in table["columns"]]
        return [dict(zip(names, row, strict=True)) for row in table["rows"]]

    def trace(self, worker: str, span: str = "1") -> dict[str, Any]:
        """What the Trace view gets."""
        return dict(self._ask("trace", worker=worker, span=span))

    def _ask(self, page: str, ready: Callable[[Any], bool] = bool, **query: str | None) -> Any:
        given = {key: value for key, value in ({"run": self.run} | query).items() if value is not None}
        return ask(f"{self.address}/data/plugin/pytorch_profiler/{page}?{urlencode(given)}", ready)


def crossing(events: list[dict[str, Any]], slack_us: float = 0.001) -> list[tuple[str, str]]:
    """Names of ranges of one CPU thread that overlap without one holding the other; checks all ranges' times."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] >= 0 <= event["dur"], event
            if event.get("cat") in CPU_RANGES:
                tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["name"]))
    found = []
    for track in tracks.values():
        around: list[tuple[float, str]] = []
        for start, length, name in sorted(track):
            while around and around[-1][0] <= start + slack_us:
                around.pop()
            if around and start - length > around[-1][0] + slack_us:
                found.append((around[-1][1], name))
            around.append((start - length, name))
    return found
