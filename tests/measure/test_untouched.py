"""What a measurement has changed is put back."""

import pytest
import torch

from strobe.measure.untouched import untouched
from support.ceilings_parts import random_states


def test_flags_and_threads_are_put_back() -> None:
    before = random_states()
    with pytest.raises(ZeroDivisionError), untouched(threads=3):  # noqa: PT012
        assert torch.get_num_threads() == 3
        torch.use_deterministic_algorithms(mode=True)
        torch.backends.cudnn.benchmark = True
        torch.rand(3)
        raise ZeroDivisionError
    assert random_states() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
