"""What is said of a request to end."""

import signal

import pytest
from lightning.pytorch.utilities.exceptions import SIGTERMException

from strobe.process.signals import exit_code, what_ended


def lightnings(cause: BaseException) -> SystemExit:
    """What Lightning makes of Ctrl-C."""
    error = SystemExit(1)
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "It was ended by Ctrl-C."),
        (lightnings(KeyboardInterrupt()), 130, "It was ended by Ctrl-C."),
        (lightnings(KeyboardInterrupt(signal.SIGHUP)), 129, "It was ended by SIGHUP: its terminal was closed."),
        (SIGTERMException(), 143, "It was ended by SIGTERM, which SLURM, kill and timeout send."),
        (KeyboardInterrupt(signal.SIGUSR1), 138, "It was ended by signal 10."),
        (SystemExit(3), 130, "It ended itself: sys.exit(3)."),
        (ValueError("3"), 130, None),
    ],
)
def test_who_or_what_ended_it(error: BaseException, code: int, said: str | None) -> None:
    assert exit_code(error) == code
    assert what_ended(error) == said
