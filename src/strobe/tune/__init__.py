"""Search for the settings with which a training is fastest here, by trainings that take turns: ``strobe tune``."""
