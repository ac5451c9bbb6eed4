"""Memory that is used again, and never while somebody still has it."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from strobe.app.loaders.buffer_pool import MOST, BufferPool

SHAPE = (4, 3, 8, 8)


def test_memory_is_used_again_when_nobody_has_it() -> None:
    buffers = BufferPool()
    places = {buffers.take(SHAPE, torch.float32).data_ptr() for _ in range(50)}
    assert len(places) == 1
    assert buffers.take((2, 3, 8, 8), torch.float32).data_ptr() in places  # a smaller batch fits as well


@pytest.mark.parametrize("keep", [lambda t: t, lambda t: t[1:], lambda t: t.view(torch.int32), lambda t: t.numpy()])
def test_what_is_kept_in_any_form_is_not_overwritten(keep: object) -> None:
    buffers = BufferPool()
    kept = [keep(buffers.take(SHAPE, torch.float32).fill_(number)) for number in range(20)]
    before = [torch.as_tensor(value).clone() for value in kept]
    for _ in range(20):
        buffers.take(SHAPE, torch.float32).fill_(-1)
    assert all(torch.equal(torch.as_tensor(value), copy) for value, copy in zip(kept, before, strict=True))


def test_what_was_shared_with_another_process_is_not_overwritten() -> None:
    buffers = BufferPool()
    place = buffers.take(SHAPE, torch.float32).data_ptr()
    assert buffers.take(SHAPE, torch.float32).share_memory_().data_ptr() != place
    assert not buffers.take(SHAPE, torch.float32).is_shared()


def test_what_a_backward_pass_needs_is_not_overwritten() -> None:
    buffers = BufferPool()
    weight = torch.ones(8, requires_grad=True)
    batch = buffers.take(SHAPE, torch.float32).fill_(3)
    loss = (batch * weight).sum()
    del batch
    buffers.take(SHAPE, torch.float32).fill_(1000)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0 * 4 * 3 * 8] * 8


def test_it_remembers_so_many_and_no_more() -> None:
    buffers = BufferPool()
    for _ in range(2):
        kept = [buffers.take((16,), torch.uint8) for _ in range(MOST + 20)]
        assert len({tensor.data_ptr() for tensor in kept}) == len(kept)
        assert len(buffers._kept) <= MOST
        del kept


def test_threads_never_get_the_same_memory() -> None:
    buffers = BufferPool()

    def work(number: int) -> bool:
        tensor = buffers.take((64,), torch.int64).fill_(number)
        return all(bool((tensor == number).all()) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(400)))
    assert len(buffers._kept) <= 5


def test_a_copy_for_another_process_is_empty() -> None:
    buffers = BufferPool()
    buffers.take(SHAPE, torch.float32)
    assert pickle.loads(pickle.dumps(buffers))._kept == []


class InWorker(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.buffers = BufferPool()
        self.buffers.pinned = True  # not heeded in a worker process

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        assert get_worker_info() is not None
        tensor = self.buffers.take((8,), torch.int64).fill_(index)
        return torch.cat([tensor, torch.tensor([tensor.is_shared(), torch.get_num_threads()])])


def test_a_worker_process_makes_shared_memory_and_computes_on_one_thread() -> None:
    found = list(DataLoader(InWorker(), num_workers=2, batch_size=None))
    assert [row.tolist() for row in found] == [[index] * 8 + [1, 1] for index in range(4)]
