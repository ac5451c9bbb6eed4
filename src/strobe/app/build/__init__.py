"""From a configuration to the objects of a run."""

PRELOAD = "strobe.app.build.preload"
"""What a server of fresh processes imports (``strobe.process.fork``)."""
