"""How many threads a loader may compute on: all of training's in its own thread, one in a worker beside it."""

import torch


def become_worker() -> None:
    """Say that the current thread loads beside training; an engine calls this in each of its threads.

    Training goes on with as many threads as before: how many there are is each thread's own in torch.
    """
    torch.set_num_threads(1)


def threads() -> int:
    """Threads for one batch: as many as torch computes on, but one in a worker, of which there are as many as cores.

    In its worker processes torch's DataLoader sets one thread too.
    """
    return torch.get_num_threads()
