"""What of a batch is for nothing: padding, labels that no loss counts, memory of which it is only a part."""

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from strobe.callbacks.batches import bytes_of, ignored_of, padding_of
from strobe.callbacks.steps import StepRecorder
from support.fitting import Model, fit
from support.steps import recorder

__all__ = ["recorder"]

TOKENS = torch.tensor([[5, 7, 0, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0]])
VECTORS = torch.cat([torch.rand(4, 15, 6) + 1, torch.zeros(4, 5, 6)], dim=1)


@pytest.mark.parametrize(
    ("batch", "share"),
    [
        (TOKENS, 0.75),
        ({"input_ids": TOKENS, "label": torch.tensor([0, 0])}, 0.75),
        ((VECTORS, torch.zeros(4, 20)), 0.25),
        (torch.tensor([[1, 2, 3], [4, 5, 6]]), 0.0),
        (torch.zeros(3, 9, dtype=torch.long), 1.0),
        (torch.zeros(8, 30), None),  # a table, some of whose columns may be alike
        (torch.zeros(8, 3, 32, 32), None),
        ((torch.rand(8, 3, 32, 32), torch.zeros(8, 5, dtype=torch.long)), None),  # labels, of which most are none
        (TOKENS[:1], None),
        (torch.zeros(2, 0, dtype=torch.long), None),
        ("text", None),
        (torch.eye(4).to_sparse(), None),
        (torch.nested.nested_tensor([TOKENS[0, :2], TOKENS[1]], layout=torch.jagged), None),
    ],
)
def test_padding_is_what_ends_all_sequences_of_a_batch(batch: Any, share: float | None) -> None:
    assert padding_of(batch) == share


MASKED = torch.tensor([[-100, 7, -100, -100], [-100, -100, -100, 9]])


@pytest.mark.parametrize(
    ("batch", "share"),
    [
        ((TOKENS, MASKED), 0.75),
        ({"input_ids": TOKENS, "labels": MASKED.abs()}, None),
        ((TOKENS, MASKED.float()), None),
        ((TOKENS, torch.tensor([-100, 1])), None),  # of whole samples
        ((TOKENS, MASKED.to_sparse()), None),
        ("text", None),
    ],
)
def test_labels_that_no_loss_counts_are_those_of_cross_entropy(batch: Any, share: float | None) -> None:
    assert ignored_of(batch) == share


LARGE = torch.zeros(1000, 8)


@pytest.mark.parametrize(
    ("batch", "bytes_and_memory"),
    [
        (LARGE, (32_000, 32_000)),
        ((LARGE[:10], LARGE[10:20, :4]), (480, 32_000)),
        ((LARGE[:10].clone(), torch.zeros(10)), (360, 360)),
        (LARGE[:1].expand(1000, 8), (32_000, 32_000)),
        ((torch.eye(4).to_sparse(), "text"), (None, None)),
        (torch.nested.nested_tensor([TOKENS[0, :2], TOKENS[1]], layout=torch.jagged), (None, None)),
        (torch.zeros(4, device="meta"), (None, None)),
        ((torch.zeros(4, device="meta"), torch.zeros(2)), (8, 8)),
    ],
)
def test_a_view_keeps_all_of_the_memory_that_it_is_a_part_of(
    batch: Any, bytes_and_memory: tuple[int | None, int | None]
) -> None:
    assert bytes_of(batch) == bytes_and_memory


@pytest.mark.parametrize("packs", [True, False])
def test_padding_that_is_packed_away_is_not_told(recorder: StepRecorder, packs: bool) -> None:
    class Reads(Model):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.network = torch.nn.Embedding(9, 4), torch.nn.GRU(4, 4, batch_first=True)

        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            values: Any = self.words(batch[0])
            if packs:
                values = pack_padded_sequence(values, (batch[0] != 0).sum(1).cpu(), batch_first=True)
            states: torch.Tensor = self.network(values)[1]
            return self.layer(states[0]).sum()

    sentences = torch.randint(1, 9, (24, 10))
    sentences[:, 6:] = 0
    fit(recorder, model=Reads(), data=TensorDataset(sentences), max_epochs=1)
    assert recorder.step_log is not None
    assert recorder.step_log.meanwhile()["padding"] == (None if packs else pytest.approx(0.4))
