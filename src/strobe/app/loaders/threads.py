"""How many threads a loader may compute on: all of training's in its own thread, one in a worker beside it."""

import threading

import torch

DISK_THREADS = 16  # that ask for files or folders: a network's disk answers one slowly, and many together

_becoming = threading.Lock()


def become_worker() -> None:
    """Say that the current thread loads beside training; an engine calls this in each of its threads, first of all.

    Other threads, and those begun later, compute on as many threads as before. torch sets how many for the thread
    that asks and as the default of new ones, so another thread sets the default again.
    """
    with _becoming:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        again = threading.Thread(target=torch.set_num_threads, args=(before,))
        again.start()
        again.join()


def threads() -> int:
    """Threads for one batch: as many as torch computes on, but one in a worker, of which there are as many as cores.

    In its worker processes torch's DataLoader sets one thread too.
    """
    return torch.get_num_threads()
