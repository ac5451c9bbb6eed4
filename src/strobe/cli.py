"""The command ``strobe``: ``strobe X ARGUMENTS`` is ``python -m strobe.X ARGUMENTS``."""

import os
import runpy
import sys

ANY = {  # need nothing but what is installed with Strobe
    "run": "a Lightning training as it is, with its verdict at the end",
    "probe": "what its loader and its model reach alone, without an edit",
    "view": "open a run: its report, TensorBoard, its traces in Perfetto",
    "report": "rebuild a run's report from its records",
    "compare": "runs and sweeps side by side, with intervals; a gate on speed",
    "clean": "what runs have left, and its removal by age",
}
APPLICATION = {
    "tune": "try what the findings say, and keep what makes training faster",
    "duel": "which of two trainings is faster, by turns",
    "ceilings": "what loading alone and the model alone reach",
    "bench": "measure a suite of benchmarks",
    "native": "build the native operators, and say what is missing",
}
COMMANDS = ANY | APPLICATION


def main() -> None:
    """Run the command that was asked for; its exit code is that of ``python -m``."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: strobe COMMAND ...     strobe COMMAND --help says more")
        for title, commands in (("Any training", ANY), ("Strobe's own, train.py", APPLICATION)):
            print(f"\n{title}")
            print("\n".join(f"  {command:<10}{told}" for command, told in commands.items()))
        print("\nThese, like python train.py, need a checkout of Strobe's repository: run make setup there")
        return
    if name not in COMMANDS:
        sys.exit(f"strobe {name} is not a command; give one of {', '.join(COMMANDS)}")
    sys.argv[1:2] = []
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # as python -m does: a configuration may name classes there
    try:
        runpy.run_module(f"strobe.{name}", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # while libraries are imported, too
        sys.exit(130)
