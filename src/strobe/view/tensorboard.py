"""TensorBoard on a run or a sweep, as a child process that ends with this one."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from strobe.present.page import OFFLINE, open_browser
from strobe.process.fork import end_session
from strobe.process.signals import noted
from strobe.records.places import has_events, runs_in, traces_in
from strobe.view.serving import address, announce, probe_port, reachable, take_port

PORT = 6006  # TensorBoard's
AGAIN = 5.0  # seconds between two looks for new runs
GRACE = 5.0  # seconds between asking TensorBoard to end and ending it


def show(path: Path, host: str, port: int | None, *, browser: bool) -> None:
    """Run TensorBoard on ``path`` until Ctrl-C; exits with a sentence if it ends by itself."""
    folder = path if path.is_dir() else path.absolute().parent
    if not has_events(folder) and not traces_in(folder):
        raise SystemExit(f"{path} holds nothing for TensorBoard; logger=tensorboard and profiler=trace write it")
    if find_spec("tensorboard") is None:
        raise SystemExit("TensorBoard is not installed: pip install tensorboard torch-tb-profiler")
    port = take_port(partial(probe_port, host), host, port, PORT)  # free a moment ago
    with (
        noted() as asked_to_end,
        # for its plugins' files, too, which they leave behind when they are ended
        tempfile.TemporaryDirectory(prefix="strobe-", ignore_cleanup_errors=True) as scratch,
        Path(scratch, "output").open("w+b") as output,
    ):
        print(f"Starting TensorBoard on {folder}", flush=True)
        named = _name_runs(folder, Path(scratch, "runs"))
        command = [sys.executable, "-m", "tensorboard.main", f"--logdir={named}", f"--host={host}", f"--port={port}"]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": scratch},
            start_new_session=True,  # with all that TensorBoard's plugins start
        )
        try:
            shown, again = False, time.monotonic() + AGAIN
            while not asked_to_end and child.poll() is None:
                if not shown and _listening(reachable(host), port):
                    shown = True
                    page = f"http://{address(reachable(host), port)}/"
                    print(f"  {page}")
                    if traces_in(folder):
                        print(f"  {OFFLINE}")
                    announce(host, port)
                    open_browser(page, wanted=browser)
                time.sleep(0.1)
                if named != folder and time.monotonic() > again:  # a sweep goes on
                    _name_runs(folder, named)
                    again = time.monotonic() + AGAIN
            if not asked_to_end:
                output.seek(0)
                said = output.read().decode(errors="replace").rstrip().rpartition("\n")[2].strip() or "it said nothing"
                raise SystemExit(f"TensorBoard ended by itself (exit code {child.returncode}): {said}")
        finally:
            _end(child)


def _name_runs(folder: Path, links: Path) -> Path:
    """A folder of links, so TensorBoard shows each run by its name, not ``<run>/tensorboard``; or ``path`` itself.

    What other loggers wrote beside the runs, such as ``lightning_logs``, is shown too.
    """
    shown = {board: run for run in runs_in(folder) if (board := run / "tensorboard").is_dir()}
    if not shown:
        return folder
    for place in sorted({path.parent for path in folder.rglob("events.out.tfevents*")}):
        if not any(place.is_relative_to(one) for one in shown):
            shown[place] = place
    links.mkdir(exist_ok=True)
    for place, named in shown.items():
        name = "-".join(named.relative_to(folder).parts) or named.absolute().name
        if not (links / name).is_symlink():
            (links / name).symlink_to(place.absolute())
    return links


def _listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to end, then kill what is left of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)
    end_session(child.pid)
    child.wait()
