"""The command ``strobe``: ``strobe X ARGUMENTS`` is ``python -m strobe.X ARGUMENTS``."""

import os
import runpy
import sys

COMMANDS = {
    "run": "any Lightning training, as it is, with its verdict at the end",
    "view": "open a run: its report, TensorBoard, its traces in Perfetto",
    "report": "rebuild a run's report from its records",
    "compare": "runs and sweeps side by side, with intervals; a gate on speed",
    "duel": "which of two trainings is faster, by turns",
    "ceilings": "what loading alone and the model alone reach",
    "tune": "try what the findings say, and keep what makes training faster",
    "bench": "measure a suite of benchmarks",
    "clean": "what runs have left, and its removal by age",
    "native": "build the native operators, and say what is missing",
}


def main() -> None:
    """Run the command that was asked for; its exit code is that of ``python -m``."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: strobe COMMAND ...\n\nCommands; strobe COMMAND --help says more:")
        print("\n".join(f"  {command:<10}{told}" for command, told in COMMANDS.items()))
        print("\nTo train or to sweep: python train.py --help")
        return
    if name not in COMMANDS:
        sys.exit(f"strobe {name} is not a command; give one of {', '.join(COMMANDS)}")
    sys.argv[1:2] = []
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # as python -m does: a configuration may name classes there
    try:
        runpy.run_module(f"strobe.{name}", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # while libraries are imported, too
        sys.exit(130)
