"""``python -m strobe X`` is ``strobe X``."""

from strobe.cli import main

main()
