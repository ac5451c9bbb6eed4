"""The command ``python -m strobe.native``."""

import sys

from strobe.app.native.command import main

if __name__ == "__main__":
    sys.exit(main())
