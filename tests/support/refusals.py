"""How a call is refused."""

from collections.abc import Callable

import pytest

from strobe.errors import DataError


def refusal(call: Callable[[], object], error: type[Exception] = DataError) -> str:
    """The one line with which ``call`` is refused."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    del caught  # and with it the error's frames and what they hold, such as a connection
    assert "\n" not in text
    return text
