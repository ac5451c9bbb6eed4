"""The command ``strobe native``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import sys

import strobe.app.needed  # noqa: F401  # isort: skip

from strobe.app.native.command import main

if __name__ == "__main__":
    sys.exit(main())
