"""What callbacks that record some training steps share: files, and the handling of failures."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .lightnings import Callback

_log = logging.getLogger(__name__)


class Recording(Callback):
    """Records some steps into files, which appear whole or not at all and replace those of an earlier `fit`.

    A step is a training batch. It reaches from the end of this callback's `on_train_batch_end` to the next. What
    cannot be recorded or written is logged as a warning and never ends the run.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)  # made when files are written
        self.files: list[Path] = []  # that were written as drafts and placed
        self.suffix = ""  # of a file's name, before its ending: the rank, if there are several

    def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Move behind the checkpoints, which Lightning puts last, so that a step includes them."""
        others = [other for other in trainer.callbacks if other is not self]
        after = [n for n, other in enumerate(others, start=1) if other in trainer.checkpoint_callbacks]
        place = max([trainer.callbacks.index(self), *after])
        trainer.callbacks = [*others[:place], self, *others[place:]]

    def on_train_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Begin step 0, before its batch is fetched."""
        self.suffix = f"_rank{trainer.global_rank}" if trainer.world_size > 1 else ""

    def on_exception(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Write what was recorded, also on Ctrl-C and SIGTERM; Lightning calls no `teardown` then."""
        self.finish(trainer)

    on_train_end = teardown = on_exception

    def finish(self, trainer: Any) -> None:
        """Stop recording, and write what there is; a second call does nothing."""
        raise NotImplementedError

    @contextmanager
    def drafts(self) -> Iterator[Path]:
        """A folder for incomplete files; raises an OSError if it cannot be made."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".recording-", dir=self.directory) as folder:
            yield Path(folder)

    def place(self, *drafts: Path) -> None:
        """Move complete files into the directory; other files there stay."""
        for draft in drafts:
            path = draft.replace(self.directory / draft.name)
            self.files = [*(file for file in self.files if file != path), path]


def come_last(callback: Any, trainer: Any) -> None:
    """Put a callback behind all others, also the checkpoints, so that a step ends after them."""
    trainer.callbacks = [*(one for one in trainer.callbacks if one is not callback), callback]


@contextmanager
def warning_only(what: str) -> Iterator[None]:
    """Log a failure, which must neither end the run nor hide the error that did."""
    try:
        yield
    except OSError as error:
        _log.warning("%s could not be written (%s); is there space?", what, error.strerror)
    except Exception:
        _log.warning("%s is missing", what, exc_info=True)
