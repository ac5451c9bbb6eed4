"""What a measurement has changed is put back."""

from collections.abc import Iterator

import pytest
import torch

from strobe.measure.untouched import matmul_precision, untouched
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


@pytest.fixture
def matmul() -> Iterator[torch.backends.cuda.cuBLASModule]:
    """How CUDA multiplies float32, as torch 2.9 and newer have it; unset again afterwards."""
    yield torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("highest")
    for one in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        one.fp32_precision = "none"


def products() -> list[str]:
    return [torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision]


@pytest.mark.parametrize(("value", "named"), [("tf32", "high"), ("ieee", "highest"), ("none", "highest")])
def test_how_float32_is_multiplied_is_told_and_put_back_also_where_torchs_getter_raises(
    matmul: torch.backends.cuda.cuBLASModule, value: str, named: str
) -> None:
    matmul.fp32_precision = value
    before = products()
    with untouched():
        assert matmul_precision() == named
        torch.set_float32_matmul_precision("high" if value == "ieee" else "highest")
        assert products() != before
    assert (matmul_precision(), products()) == (named, before)
