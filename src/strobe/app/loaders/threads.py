"""How many threads a loader may use: all of training's in the training thread, one in a worker beside it.

There may be a worker for each core. In its worker processes torch's DataLoader sets one thread, too.
"""

import threading

import torch

DISK_THREADS = 16  # that stat and list files: a network disk answers slowly, but many at once

_becoming = threading.Lock()


def become_worker() -> None:
    """Mark the current thread as one that loads beside training; an engine calls this first in each of its threads.

    The number for other threads, and for later ones, stays. torch sets it for the calling thread and as the default of
    new ones, so another thread restores the default.
    """
    with _becoming:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        again = threading.Thread(target=torch.set_num_threads, args=(before,))
        again.start()
        again.join()
