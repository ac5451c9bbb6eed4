"""The command ``strobe view``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from strobe.present.format import rate as whole
from strobe.present.page import OFFLINE, open_browser
from strobe.process.launch import parser_of, start
from strobe.records.places import ATTACHED, OUTPUTS, has_events, locate, newest_of, runs_in, traces_in
from strobe.records.run import load_record, rate_of
from strobe.view import perfetto, tensorboard
from strobe.view.serving import LOOPBACK

HELP = f"""Opens a run: its report or record, TensorBoard, or its traces in Perfetto. Makes one page of any traces that
torch.profiler wrote, of one rank or of many. TensorBoard:
{OFFLINE}

Ctrl-C ends a server, with exit code 0.

Examples
  strobe view                                     the newest run, and what can be opened
  strobe view outputs/runs/DATE/RUN --perfetto    its timeline, trace by trace
  strobe view outputs/sweeps/DATE/TIME --tensorboard
  strobe view rank0.json.gz rank1.json.gz         one page: steps, idle time, operators, memory, ranks
  strobe view new.json.gz --baseline old.json.gz --out page.html
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Show what was asked for; exits with a sentence if that is not possible."""
    parser = parser_of("view", HELP)
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="RUN | TRACE",
        help=f"run or sweep, or trace files (default: the newest run below {OUTPUTS}/ and {ATTACHED}/)",
    )
    parser.add_argument("--baseline", type=Path, metavar="TRACE", help="what the page of traces compares with")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where that page goes (default: beside the first trace)"
    )
    viewer = parser.add_mutually_exclusive_group()
    viewer.add_argument("--perfetto", action="store_true", help="serve Perfetto's interface with the traces")
    viewer.add_argument("--tensorboard", action="store_true", help="run TensorBoard on the run or sweep")
    parser.add_argument("--host", default=LOOPBACK, help=f"address to listen on (default: {LOOPBACK}, this machine)")
    parser.add_argument(
        "--port",
        type=_port,
        help=f"port (default: the next free one from {perfetto.PORT} for Perfetto, {tensorboard.PORT} for TensorBoard)",
    )
    parser.add_argument("--no-open", "--no-browser", action="store_true", help="only print the address")
    given = parser.parse_args(arguments)
    paths, browser = [locate(path) for path in given.paths or [None]], not given.no_open
    if given.perfetto:
        perfetto.show(paths, given.host, given.port, browser=browser)
    elif given.tensorboard:
        if len(paths) > 1:
            parser.error("argument --tensorboard: it shows one run or sweep; give the folder around them")
        tensorboard.show(paths[0], given.host, given.port, browser=browser)
    elif given.out or given.baseline or len(paths) > 1 or paths[0].is_file():
        _make_page(paths, given.baseline and locate(given.baseline), given.out, browser=browser)
    else:
        _print(paths[0], browser=browser)


def _make_page(paths: Sequence[Path], baseline: Path | None, out: Path | None, *, browser: bool) -> None:
    """Write the page of some traces, and open it."""
    from strobe.report.trace_page import PAGE, write_trace_page

    traces = [trace for path in paths for trace in newest_of(traces_in(path))]
    if not traces:
        raise SystemExit(f"{paths[0]} holds no traces; name a .json or .json.gz trace that torch.profiler exported")
    out = out or traces[0].with_name(f"{traces[0].name.partition('.json')[0]}{PAGE}")
    page = write_trace_page(out, traces, newest_of(traces_in(baseline)) if baseline else ())
    print(f"page      {page} ({page.stat().st_size / 1e6:.1f} MB)")
    print(f"timeline  strobe view {shlex.join(map(str, paths))} --perfetto")
    open_browser(page.absolute().as_uri(), wanted=browser)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text} is not a port; give a number from 0 (any free one) to 65535")
    return int(text)


def _print(path: Path, *, browser: bool) -> None:
    """Print the report's path, or else the record, and the commands for the rest."""
    report = path / "report.html"
    runs = runs_in(path)
    if report.is_file():
        print(f"report    {report}")
        open_browser(report.absolute().as_uri(), wanted=browser)
    else:
        for run in runs:
            _print_run(run, alone=run == path)
    name = shlex.quote(str(path))
    if (report.is_file() or runs != [path]) and traces_in(path):  # else the run's record named this one
        print(f"traces    strobe view {name} --perfetto")
    if has_events(path):
        print(f"curves    strobe view {name} --tensorboard\n          {OFFLINE}")


def _print_run(run: Path, *, alone: bool) -> None:
    """Print a run's record; in one line if it is one of several."""
    from rich.console import Console

    from strobe.report.terminal import print_summary
    from strobe.report.wording import unit_of

    if not (run / "summary.json").is_file():
        print(f"{run}: no summary.json; the run is still going on, or was killed")
        return
    record = load_record(run)
    try:
        if alone:
            print_summary(record.summary, run, Console())
        else:
            told = f", {whole(rate)} {unit_of(record)}" if (rate := rate_of(record)) is not None else ""
            print(f"{run}: {record.summary['status']}{told}")
    except (KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{run / 'summary.json'} is not a record of this version ({error!r})") from None


if __name__ == "__main__":
    start(main)
