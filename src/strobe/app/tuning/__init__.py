"""Search for the configuration that trains fastest here, by trainings that take turns: ``strobe tune``."""
