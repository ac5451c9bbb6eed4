"""Trainings of scripts that know nothing of Strobe take turns, in processes of their own."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from strobe.duel import foreign
from strobe.duel.foreign import Foreign
from strobe.duel.paired_trial import Defeat, duel
from strobe.measure.timing import Block
from strobe.probe.takeover import LEFT_ON
from strobe.process.fork import Failure
from support.duels import LOOP, OF_A_STRANGER, TRAINER, become, files, said

Start = Callable[..., Foreign]
QUICK = ("--seconds", "0.1", "--quads", "4")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a script in a process that has imported torch and Lightning; it is ended after the test."""
    monkeypatch.setattr(foreign, "_become", become)
    with ExitStack() as stack:

        def begin(text: str, *arguments: str) -> Foreign:
            (tmp_path / "script.py").write_text(text)
            words = [sys.executable, "script.py", *arguments]
            training = Foreign(words, tmp_path / "kept", variables=os.environ, timeout=100, place=tmp_path)
            return stack.enter_context(training)

        yield begin


def row(text: str, name: str) -> list[str]:
    """The figures of both sides in a table."""
    [line] = (line for line in text.splitlines() if f" {name} " in line and "│" in line)
    return line.replace("│", " ").split()[-2:]


def failure(training: Foreign) -> str:
    """Why it cannot train, or not for long."""
    found = training.start()
    for _ in range(9):
        if isinstance(found, Failure):
            return found.reason
        found = training.turn(0.05)
    raise AssertionError("it trains on")


def test_two_lightnings_take_turns_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "pytorch_lightning" if find_spec("pytorch_lightning") else "lightning.pytorch"
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/train.py"):
        (tmp_path / name).write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STROBE", "1")
    before = files(tmp_path)
    commands = (
        "--",
        "python",
        "train.py",
        "lightning.pytorch",
        "0",
        "--",
        "python",
        "-m",
        "package.train",
        other,
        "0.02",
    )
    code, text = said(capsys, *QUICK, "--fail-if-slower", "5%", *commands)
    assert code == 3, text
    assert "A starts: python train.py lightning.pytorch 0\n" in text
    assert "B is slower" in text
    waits = row(text, "data wait")
    assert float(waits[1]) >= 20
    assert row(text, "samples") == ["4", "4"]
    assert "samples/s, B " in text
    assert files(tmp_path) == before


def test_loops_of_their_own_take_turns_and_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(foreign, "_become", become)
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "loop.py").chmod(0o755)
    (tmp_path / "strangers.py").write_text(OF_A_STRANGER)
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    code, text = said(capsys, *QUICK, "--", "./loop.py", "0.02", "--", "SOME=1", "python", "strangers.py", "0")
    assert code == 0, text
    assert "B is faster" in text
    assert float(row(text, "forward")[0]) >= 20
    assert files(tmp_path) == before


def test_batches_that_do_not_show_their_size_are_counted(start: Start) -> None:
    text = LOOP.replace("in strobe.watch(loader,", "in strobe.watch(range(9),")
    training = start(text.replace("    model(batch).square", "    model(torch.ones(2, 8)).square"), "0")
    started = training.start()
    assert isinstance(started, Block), started
    assert (training.sized, started.images) == (False, started.steps)


def test_one_of_two_loaders_in_a_zip_counts_steps(start: Start) -> None:
    watched = 'strobe.watch(loader, optimizer=optimizer, directory="record")'
    assert watched in LOOP
    single = "torch.utils.data.DataLoader(torch.ones(24, 8))"
    two = LOOP.replace(watched, f"zip({watched}, strobe.watch({single}))")
    training = start(two.replace("for batch in zip", "for batch, _ in zip"), "0")
    assert isinstance(training.start(), Block)
    turn = training.turn(0.01)
    assert isinstance(turn, Block), turn
    assert turn.images == 4 * turn.steps


SETS = "torch.utils.data.DataLoader(torch.ones(28, 8), batch_size=4, num_workers=1, persistent_workers={})"


@pytest.mark.parametrize(("stay", "steps_of_a_turn"), [(False, 7), (True, 2)])
def test_a_turn_has_whole_epochs_where_each_starts_its_workers(start: Start, stay: bool, steps_of_a_turn: int) -> None:
    stream = "torch.utils.data.DataLoader(Stream(), batch_size=None)"
    assert stream in TRAINER
    training = start(TRAINER.replace(stream, SETS.format(stay)), "lightning.pytorch", "0")
    assert isinstance(training.start(), Block)
    turns = [training.turn(1e-6) for _ in range(3)]
    steps = [turn.steps for turn in turns if isinstance(turn, Block)]
    assert steps == 3 * [steps_of_a_turn]


@pytest.mark.parametrize(("on", "steps_of_a_turn"), [("validation,logging", 14), ("", 2)])
def test_a_turn_has_its_share_of_validations_and_logs_into_a_folder_of_its_own_where_they_are_left_on(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, steps_of_a_turn: int
) -> None:
    """7 steps an epoch, and a validation of 0.1 s after each second epoch."""
    monkeypatch.setenv(LEFT_ON, on)
    script = TRAINER
    for old, new in (
        ("torch.utils.data.DataLoader(Stream(), batch_size=None)", SETS.format(True)),
        ("self.logger.experiment.config.update(anything=1)", "pass"),
        ('raise RuntimeError("a turn is of training only")', "time.sleep(0.1)"),
        ("max_steps=2,", "check_val_every_n_epoch=2, limit_val_batches=1, log_every_n_steps=1,"),
        ("max_epochs=1,", "max_epochs=1, logger=import_module(name + '.loggers').CSVLogger('logs', 'mine'),"),
    ):
        assert old in script
        script = script.replace(old, new)
    training = start(script, "lightning.pytorch", "0")
    assert isinstance(training.start(), Block)
    turns = [turn for _ in range(3) if isinstance(turn := training.turn(1e-6), Block)]
    assert [turn.steps for turn in turns] == 3 * [steps_of_a_turn]
    assert all((turn.seconds > 0.1) == bool(on) for turn in turns[1:])
    training.close()
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["script.py", "kept"]
    logs = list((tmp_path / "kept").rglob("*.yaml"))
    assert [path.parent.name for path in logs] == (["version_0"] if on else [])


WITHOUT = "it ended without training: neither fit of a Lightning Trainer nor a loop over a DataLoader"
BY_ITSELF = "its training loop ended by itself; let it go on"
UPDATE = "        optimizer.step()"
BREAK = f"{UPDATE}\n        epoch += 1\n        if epoch > 20: break"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print('a word')", WITHOUT),
        ("print('a word')", "; it said last: a word"),
        ("import sys; print('usage'); sys.exit(2)", "it ended with code 2 before it trained; it said last: usage"),
        ("raise SystemExit('give --data')", "give --data"),
        ("open('gone')", "FileNotFoundError: [Errno 2] No such file or directory: 'gone'"),
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        (LOOP.replace(UPDATE, ""), WITHOUT),
        (LOOP.replace(UPDATE, f"{UPDATE}; break"), BY_ITSELF),
        (LOOP.replace("range(2)", "range(1000)").replace(UPDATE, BREAK), BY_ITSELF),
        (LOOP.replace("in strobe.watch(loader,", "in strobe.watch(iter(loader),"), BY_ITSELF),
    ],
)
def test_what_cannot_train_is_told_in_one_sentence(text: str, reason: str, start: Start) -> None:
    told = failure(start(text, "0"))
    assert reason in told
    assert "\n" not in told


def test_memory_that_runs_out_is_no_mistake(start: Start) -> None:
    found = start("raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB.')").start()
    assert isinstance(found, Failure)
    assert found.memory


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("max_time=", "devices=2, strategy='ddp_spawn', max_time=", "it trains in 2 processes"),
        ("self.trainer.should_stop = True", "self.trainer.checkpoint_callback.dirpath", "(checkpoints are off while"),
    ],
)
def test_what_a_trainer_cannot_do_is_told_in_one_sentence(before: str, after: str, reason: str, start: Start) -> None:
    assert before in TRAINER
    assert reason in failure(start(TRAINER.replace(before, after), "lightning.pytorch", "0"))


def test_nothing_of_the_script_runs_after_its_training(start: Start, tmp_path: Path) -> None:
    fit = 'trainer.fit(Model(name == "pytorch_lightning"), loader, loader)'
    loader = "torch.utils.data.DataLoader(Stream(), batch_size=None)"
    assert all(part in TRAINER for part in (fit, loader))
    text = TRAINER.replace(loader, "iter(Stream())").replace(fit, f"try: {fit}\n    finally: open('saved', 'w')")
    assert "gave no batch in an epoch" in failure(start(text, "lightning.pytorch", "0"))
    assert not (tmp_path / "saved").exists()


def test_a_training_that_breaks_off_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_become", become)
    broken = LOOP.replace("time.sleep(pause)", "time.sleep(pause / (40 - epoch)); epoch += 1")
    with ExitStack() as stack:
        sides = []
        for name, text in (("A", LOOP), ("B", broken)):
            (tmp_path / f"{name}.py").write_text(text)
            words = [sys.executable, f"{name}.py", "0.001"]
            training = Foreign(words, tmp_path / name, variables=os.environ, timeout=100, place=tmp_path)
            sides.append(stack.enter_context(training))
            assert isinstance(training.start(), Block)
        found = duel(*sides, seconds=0.3)
    assert found == Defeat("ZeroDivisionError: float division by zero", side="candidate")
