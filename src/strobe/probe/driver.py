"""Runs a script as ``python`` would, with changes to its training from outside: ``python driver.py SCRIPT ...``."""

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Become the script, or the module after ``-m``; nothing heavy is imported before it is."""
    from strobe.probe.changes import install

    install()
    module = sys.argv[1] == "-m"
    sys.argv[:] = sys.argv[1 + module :]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd() if module else Path(sys.argv[0]).resolve().parent)
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
