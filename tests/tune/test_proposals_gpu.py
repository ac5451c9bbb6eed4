"""What is proposed for the GPU at hand."""

import pytest
import torch

from strobe.measure.environment import describe
from tune.test_proposals import concluded, measured

pytestmark = pytest.mark.gpu


def test_tensorfloat32_is_proposed_where_it_changes_products() -> None:
    record = concluded("nothing")
    record.summary["accelerator"], record.config["matmul_precision"] = "cuda", "highest"
    record.config["trainer"] |= {"benchmark": None, "deterministic": None}
    record.summary["environment"] = describe(start_gpu=True)
    found = measured(record)
    numbers, before = torch.randn(512, 512, device="cuda"), torch.get_float32_matmul_precision()
    products = []
    try:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            products.append(numbers @ numbers)
    finally:
        torch.set_float32_matmul_precision(before)
    assert ("matmul_precision=high" in found) == (not torch.equal(*products))
    assert "trainer.benchmark=true" in found
