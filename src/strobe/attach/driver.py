"""The process of ``strobe run``: becomes the script, and says at its end where nothing was recorded."""

import atexit
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from strobe.attach import outside, place, unasked
from strobe.attach.place import BEGUN, MEMORY
from strobe.probe import running
from strobe.probe.changes import once_imported
from strobe.process.launch import rank
from strobe.process.output import note

NOTHING = (
    "Strobe: no training was recorded: no Trainer.fit was called, no loop over a DataLoader made an update, and the "
    "script's own process made fewer than six updates elsewhere."
)
OTHERWISE = " Where other code trains, write: for batch in strobe.watch(batches)"
ELSEWHERE = (
    " The processes that it started computed for longer than it did: if they train, give strobe run their script."
)


def main() -> None:
    """Become the script, or the module after ``-m``; nothing heavy is imported before it is."""
    begun = os.memfd_create(MEMORY)  # which the processes that it starts find below /proc
    os.environ[BEGUN] = f"/proc/{os.getpid()}/fd/{begun}"
    process = os.getpid()
    with suppress(OSError):  # of a folder that is gone
        place.home = Path.cwd()

    def tell() -> None:
        if os.getpid() == process and rank() == 0 and not os.fstat(begun).st_size:
            note(NOTHING + (OTHERWISE + ELSEWHERE * _waited_for_others()) * ended)
        elif os.getpid() == process and ended:
            outside.tell()

    ended = False  # without an error
    atexit.register(tell)  # the first one is called last
    del sys.orig_argv[1]  # this file
    sys.excepthook = _without_frames
    unasked.install()
    once_imported({"torch": lambda _: outside.begin()})
    try:
        running.run(sys.argv[1:])
        ended = True
    except SystemExit as asked:
        ended = not asked.code
        raise


def _waited_for_others() -> bool:
    """Whether the processes that this one has started, and waited for, computed for longer than it did."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return others.ru_utime > own.ru_utime


def _without_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python prints, without the frames that lead to the script."""
    ours = {__file__, running.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main()
