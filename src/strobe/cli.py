"""The command ``strobe``: ``strobe X ARGUMENTS`` is ``python -m strobe.X ARGUMENTS``."""

from strobe.process.signals import listen  # isort: skip  # a request before that has Python's effect

import os
import runpy
import sys

from strobe import __version__

ANY = {  # need nothing but what is installed with Strobe
    "run": "run any training, with a verdict at its end",
    "probe": "measure what a training's loader and model reach alone",
    "tune": "find what makes training faster, and prove it; for any script, without an edit",
    "duel": "let two trainings, or commits, take turns: which one is faster; a gate on speed",
    "view": "open a run: its report, TensorBoard, Perfetto; or make one page of any traces",
    "report": "rebuild a run's report from its records",
    "compare": "compare runs and sweeps, with intervals; a gate on speed",
    "clean": "list what runs left behind, and remove it by age",
    "doctor": "say what is installed, what is missing, and how to get it",
}
APPLICATION = {
    "ceilings": "measure what loader and model of train.py reach alone",
    "bench": "run a benchmark suite",
    "pack": "write a data set into shards, on the disk or in storage",
    "native": "compile the C++ operators, and say what is missing",
}
COMMANDS = ANY | APPLICATION


def main() -> None:
    """Run a command as ``python -m`` would, with the same exit code."""
    listen()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: strobe COMMAND ...     strobe COMMAND --help says more     strobe --version")
        for title, commands in (("Any training", ANY), ("Strobe's own, train.py", APPLICATION)):
            print(f"\n{title}")
            print("\n".join(f"  {command:<10}{told}" for command, told in commands.items()))
        print("\nThese, like python train.py, need a checkout of Strobe's repository: run make setup there")
        print("Exit code 1: it failed; 2: the command line is wrong. docs/exit-codes.md has the others")
        return
    if name == "--version":
        print(f"lightning-strobe {__version__}")
        return
    if name not in COMMANDS:
        print(f"strobe {name} is not a command; give one of {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(2)
    sys.argv[1:2] = []
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # as python -m does: a configuration may name classes there
    runpy.run_module(f"strobe.{name}", run_name="__main__", alter_sys=True)
