"""The command ``python -m strobe.native``."""

import sys

import strobe.app.needed  # noqa: F401  # isort: skip

from strobe.app.native.command import main

if __name__ == "__main__":
    sys.exit(main())
