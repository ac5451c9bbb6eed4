"""How a call is refused."""

from collections.abc import Callable

import pytest

from strobe.errors import DataError
from strobe.process.launch import start


def refusal(
    call: Callable[[], object], error: type[BaseException] | tuple[type[BaseException], ...] = DataError
) -> str:
    """The one line with which ``call`` is refused."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    del caught  # and with it the error's frames and what they hold, such as a connection
    assert "\n" not in text
    return text


def ended(command: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command that is run in this process, and what it printed."""
    with pytest.raises(SystemExit) as stop:
        start(command)
    said = "".join(capsys.readouterr())
    if isinstance(stop.value.code, str):  # which Python prints, and then exits with 1
        return 1, f"{said}{stop.value.code}\n"
    return int(stop.value.code or 0), said
