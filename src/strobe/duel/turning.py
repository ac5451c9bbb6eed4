"""Runs a program whose training takes turns with another one's: ``python turning.py PIPE SCRATCH PROGRAM``.

It is run by its path, in the program's own Python and folder, so it imports nothing that is installed there but what
the program imports; a few modules of Strobe are loaded by their paths, from beside this one. The first training is the
one that counts: a ``fit`` of a Trainer of either Lightning, or a loop over a DataLoader, or over ``strobe.watch``, in
which an optimizer steps. It has no end, no validation unless that is left on, and keeps nothing. At the end of each
turn it sends on the pipe, whose number is given, what the turn came to, as a mapping (of what, see `Turns`), and stops
its own process group, so that its loaders make no batches in advance. The other end sends seconds, and resumes it
(SIGCONT). If it cannot train, it sends a sentence instead.
"""

import contextlib
import importlib.util
import math
import os
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

WARMUP, LEAST = 3, 2  # steps before the first turn, and of a turn
PATIENT = 10.0  # seconds, after which it no longer waits for the steps that workers had ready
EPOCH = 30.0  # seconds: of the longest epoch that a turn has as a whole, if its workers take NOTABLE of it to start
NOTABLE = 0.05
STROBE = Path(__file__).parents[1]
PRIVATE = "_strobe_turns_"  # before the names of Strobe's modules here, which may be others than the program's own
CHANGES = "STROBE_CHANGES"  # a variable: what probe/changes.py changes in the program
RECORD = ("Strobe", "Recording", "StepRecorder")
LONGEST = 300  # characters of an error that are told
LEFT = "its training loop ended by itself; let it go on, without a break and for more epochs"


class Step(NamedTuple):
    """A step that has ended."""

    samples: int | None  # None until a batch shows its size
    lap: Any  # what Strobe's clock has timed; None without it


class Turns:
    """Counts the steps of a turn, tells what it came to, and then waits for the next one.

    It tells ``steps``, the ``seconds`` they took, ``images``, and ``phases`` with the seconds of each. The two last
    are None where the batches do not show their size, and where this Python is too old for Strobe's clock. The first
    time, ``sources`` has the files of the program's own modules.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.clock: Any = None  # Strobe's
        self.trained = 0  # steps so far
        self.began = self.fits = False  # whether training did; whether a Trainer's fit did
        self._turns: Generator[None, Step, None]
        self._size: int | None = None  # of the latest batch that showed it
        self._phases: dict[str, float] = {}
        self._size_of: Callable[[Any], int | None] = lambda _: None

    def begin(
        self, loaders: Any, *, accumulated: int = 1, epoch: float = math.inf, validated: float | None = None
    ) -> None:
        """Training begins now, on batches of such a loader, or collection of them; an epoch has so many steps.

        Validations, which come after so many, take part.
        """
        from torch.utils._pytree import tree_leaves

        with contextlib.suppress(Exception):  # this Python is too old for it
            self._size_of = strobes("callbacks.batches").size_of
        ahead, anew = WARMUP, False  # batches that workers have ready; whether these start in each epoch
        for one in tree_leaves(loaders):
            if isinstance(workers := getattr(one, "num_workers", None), int) and workers:
                ahead = max(ahead, workers * ((getattr(one, "prefetch_factor", None) or 2) + 1))
                accumulated = math.lcm(accumulated, workers)
                anew = anew or getattr(one, "persistent_workers", None) is False
        self.began = True
        whole = int(epoch) if anew and math.isfinite(epoch) else None
        self._turns = self._take_turns(ahead, accumulated, whole, validated)
        next(self._turns)

    def step(self, batch: Any) -> None:
        """A step has ended."""
        lap = self.clock.lap() if self.clock is not None else None
        self.trained += 1
        self._size = self._size_of(batch) or self._size
        self._turns.send(Step(self._size, lap))

    def _take_turns(
        self, ahead: int, multiple: int, epoch: int | None, validated: float | None
    ) -> Generator[None, Step, None]:
        """Takes each step as it ends: first a turn of one, after so many ``ahead``, and then each that is asked for.

        A turn has a multiple of so many steps. ``epoch`` are those of one whose workers start anew; ``validated`` those
        between validations, of which each turn has its share; infinite if they are not counted in steps.
        """
        timing = strobes("measure.timing")
        began = time.perf_counter()
        first = yield
        started = time.perf_counter()
        warming = timing.Window(0.0, warmup=ahead, patience=PATIENT, least=1, clock=_now)
        turn = yield from self._train(warming, first)
        usual = (time.perf_counter() - started) / (self.trained - 1)
        if epoch:  # of whose time the start of workers may be a part that turns of a few steps have by chance
            starting = started - began - usual
            if starting >= NOTABLE * epoch * usual and starting + epoch * usual <= EPOCH:
                multiple = epoch
        if validated:
            if math.isinf(validated):
                self.fail("its validations are not counted in steps: leave validation out of --over")
            if (multiple := math.lcm(multiple, int(validated))) * usual > EPOCH:
                self.fail(f"a turn with its validations takes more than {EPOCH:.0f} s: leave validation out of --over")
        turn["sources"] = _sources()
        while True:
            window = timing.Window(self._wait(turn), warmup=1, multiple=multiple, least=LEAST, clock=_now)
            first = yield
            turn = yield from self._train(window, first)

    def _train(self, window: Any, step: Step) -> Generator[None, Step, dict[str, Any]]:
        """Takes steps, from this one to the last one in the window; returns what they came to."""
        while not window.add(step.samples or 0):
            if window.steps:
                self.spend(step.lap)
            else:  # the warm-up may be over, and the window has waited for the GPU
                self._phases = {}
                if self.clock is not None:
                    self.clock.restart()
            step = yield
        self.spend(step.lap)
        images = None if step.samples is None else window.images
        return {"images": images, "seconds": window.seconds, "steps": window.steps, "phases": self._phases or None}

    def spend(self, lap: Any) -> None:
        """Count what Strobe's clock has timed."""
        for phase, seconds in lap.phases.items() if lap is not None else ():
            self._phases[phase] = self._phases.get(phase, 0.0) + seconds

    def fail(self, sentence: str) -> NoReturn:
        """Say why, and end here: nothing of the script runs any more, not its ``finally``."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the script may have closed or replaced it
                stream.flush()
        with contextlib.suppress(OSError):
            self._pipe.send(sentence)
        os._exit(1)

    def ended(self) -> NoReturn:
        """Say that training did."""
        self.fail(f"its training ended by itself after {self.trained} steps; remove what ends it")

    def _wait(self, turn: dict[str, Any]) -> float:
        """Tell what the turn came to, and stand still until the next one, of so many seconds."""
        try:
            self._pipe.send(turn)
            os.killpg(0, signal.SIGSTOP)
            return float(self._pipe.recv())
        except (EOFError, OSError):  # the other end has gone
            os.killpg(0, signal.SIGKILL)
            raise


class Fits:
    """Lets the Trainers of a Lightning take turns, once its package has been imported."""

    def __init__(self, turns: Turns, scratch: str) -> None:
        self._turns, self._scratch = turns, scratch

    def __call__(self, package: ModuleType) -> None:
        """Take over what a ``fit`` of its Trainers does."""
        takeover, turns, scratch = strobes("probe.takeover"), self._turns, self._scratch
        taking = type("TakesTurns", (_TakenOver, package.Callback), {})

        def begin(trainer: Any) -> None:
            if trainer.world_size > 1:
                turns.fail(f"it trains in {trainer.world_size} processes, and a duel is of one each; give devices=1")
            turns.fits = True
            takeover.silence(trainer, scratch)
            trainer.callbacks = [each for each in trainer.callbacks if not _records(each)]
            if not any(isinstance(each, taking) for each in trainer.callbacks):
                trainer.callbacks.append(taking(turns, takeover, scratch))

        def ended(_: Any) -> None:
            if turns.began:
                turns.ended()

        takeover.without_loggers(package.Trainer, scratch)
        takeover.on_fit(package.Trainer, begin, ended)


class Steps:
    """A callback, of the package's own class, too: tells the steps of a training that has no end."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._before = 0  # steps when the epoch began

    def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Come last, so that a step ends after all other callbacks."""
        trainer.callbacks = [*(one for one in trainer.callbacks if one is not self), self]

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin to count."""
        accumulated, epoch = trainer.accumulate_grad_batches, trainer.num_training_batches
        cycle = strobes("probe.takeover").validation_cycle(trainer, epoch)
        validated = cycle and cycle[1]
        self._turns.begin(trainer.train_dataloader, accumulated=accumulated, epoch=epoch, validated=validated)

    def on_train_epoch_start(self, *_: Any) -> None:
        """Note where the epoch begins."""
        self._before = self._turns.trained

    def on_train_epoch_end(self, *_: Any) -> None:
        """See that epochs go on."""
        if self._turns.trained == self._before:
            self._turns.fail("its loader gave no batch in an epoch; it must give some in each one")

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """Count a step."""
        self._turns.step(batch)


class _TakenOver(Steps):
    """That of a training which is to have no end."""

    def __init__(self, turns: Turns, takeover: Any, scratch: str) -> None:
        super().__init__(turns)
        self._takeover, self._scratch = takeover, scratch

    def on_fit_start(self, trainer: Any, *_: Any) -> None:
        """Switch off what the module has brought."""
        self._takeover.take_over(trainer, self._scratch)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin to count, by phases."""
        with contextlib.suppress(Exception):  # this Python is too old for it
            clock = strobes("callbacks.phases").PhaseClock()
            clock.install(trainer)
            self._turns.clock = clock
        super().on_train_start(trainer)

    def on_train_epoch_start(self, *_: Any) -> None:
        """What comes next waits for data."""
        super().on_train_epoch_start()
        if self._turns.clock is not None:
            self._turns.spend(self._turns.clock.restart(epoch=True))

    def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
        """Count a step, after which there are more."""
        self._takeover.go_on(trainer)
        super().on_train_batch_end(trainer, *given)


class Loops:
    """Lets loops over DataLoaders, or over ``strobe.watch`` once it has been imported, take turns.

    Their loaders begin again when they end.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._phases: Any = None
        self._counted: object = None  # the loop whose steps count, of several that are nested or zipped
        self._left = False  # whether the script has left that one

    def __call__(self, package: ModuleType) -> None:
        """Take the place of its iterator."""
        package.watch.__iter__ = lambda watched: self._batches(watched.loader, iter)

    def give(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """The batches of a loop over a DataLoader; a Trainer's are its own."""
        return iterate(loader) if self._turns.fits else self._batches(loader, iterate)

    def _batches(self, loader: Any, iterate: Callable[[Any], Any]) -> Iterator[Any]:
        import torch

        if not torch.is_grad_enabled():
            yield from iterate(loader)
            return
        if self._left:  # what the script did meanwhile would be part of the turn
            self._turns.fail(LEFT)
        if self._phases is None:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                self._turns.fail("it uses torch.distributed, and a duel is of one process each; start it as one")
            clock = strobes("callbacks.clock").Clock()
            self._phases = strobes("callbacks.loop").LoopPhases(clock, None, lambda _: True)
            self._phases.watch_updates()
            self._turns.clock = clock
        phases, turns, this = self._phases, self._turns, object()
        before, fresh = phases.updates, True
        batches = iterate(loader)
        try:
            while True:
                phases.change("data_wait")
                try:
                    batch = next(batches)
                except StopIteration:
                    if fresh or phases.updates == before:  # nothing is left, or nothing is trained on it
                        return
                    batches, fresh = iterate(loader), True
                    continue
                fresh = False
                phases.change("forward")
                yield batch
                phases.end_step()
                if phases.failure is not None:
                    raise phases.failure
                if self._counted is this:
                    turns.step(batch)
                elif phases.updates > before and not turns.began:
                    self._counted = this
                    turns.begin(loader)
        finally:  # it is used up, or the script has left it
            phases.change(None)
            if phases.updates > before and not turns.began:
                self._counted = this
                turns.begin(loader)
            self._left = self._left or self._counted is this


def strobes(name: str) -> Any:
    """A module of Strobe, from beside this one, under a name of its own."""
    package, _, rest = name.partition(".")
    private = PRIVATE + package
    if private not in sys.modules:
        file = STROBE / package / "__init__.py"
        spec = importlib.util.spec_from_file_location(private, file, submodule_search_locations=[str(file.parent)])
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[private] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return importlib.import_module(f"{private}.{rest}")


def _now() -> float:
    """Seconds, after the queued work of all GPUs that this process uses: the current one may be another."""
    torch = sys.modules["torch"]
    for number in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        if torch._C._cuda_hasPrimaryContext(number):  # waiting for another one would begin to use it
            torch.cuda.synchronize(number)
    if torch.xpu.is_initialized():
        torch.xpu.synchronize()
    return time.perf_counter()


def _records(callback: Any) -> bool:
    """Whether it is one of Strobe's that record, and disturb some steps or all."""
    return any(kind.__module__.startswith("strobe.") and kind.__name__ in RECORD for kind in type(callback).__mro__)


def _sources() -> list[str]:
    """The files of the modules that were imported, but for installed ones."""
    standard = sysconfig.get_path("stdlib")
    found = {
        getattr(module, "__dict__", {}).get("__file__")
        for name, module in list(sys.modules.items())
        if not name.startswith(PRIVATE)
    }
    return sorted(str(one) for one in found if one and "site-packages" not in str(one) and not one.startswith(standard))


def main() -> None:
    """Run the program, and say why it did not train if it ends."""
    _, pipe, scratch, *words = sys.argv
    turns = Turns(Connection(int(pipe)))
    os.set_inheritable(int(pipe), False)
    fits = Fits(turns, scratch)
    waiting: dict[str, Callable[[ModuleType], None]] = {"lightning.pytorch": fits, "pytorch_lightning": fits}
    changes, running, takeover = strobes("probe.changes"), strobes("probe.running"), strobes("probe.takeover")
    loops = Loops(turns)
    waiting |= {"strobe.attach.watch": loops, "hydra": running.Hydra(scratch)}
    sys.meta_path.insert(0, changes.Imports(waiting))
    changes.give_batches(loops.give)
    if os.environ.get(CHANGES):
        changes.install()
    try:
        running.run(words)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
            turns.fail(error.code)
        if error.code:
            turns.fail(f"it ended with code {error.code} {'while' if turns.began else 'before'} it trained")
    except BaseException as error:
        traceback.print_exc()
        sentence = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())
        turns.fail(sentence[:LONGEST] + takeover.due(error))
    if turns.began:
        turns.fail(LEFT)
    turns.fail(
        "it ended without training: neither fit of a Lightning Trainer nor a loop over a DataLoader, or over "
        "strobe.watch, in which an optimizer steps"
    )


if __name__ == "__main__":
    main()
