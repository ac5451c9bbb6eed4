"""Runs a script as ``python`` would, with changes to its training from outside: ``python driver.py SCRIPT ...``."""

import sys


def main() -> None:
    """Become the script, or the module after ``-m``; nothing heavy is imported before it is."""
    from strobe.attach.unasked import install as probe_loops
    from strobe.probe.asked import Asked
    from strobe.probe.changes import Imports, install
    from strobe.probe.running import Hydra, run

    install()
    if (asked := Asked.read()) is not None:
        sys.meta_path.insert(0, Imports({"hydra": Hydra(asked.scratch)}))
        probe_loops(asked)
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
