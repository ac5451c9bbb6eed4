"""``strobe duel --commit A --commit B``: two commits of a small project take turns, and nothing is left."""

import multiprocessing.forkserver
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from strobe.duel.commits import Repository
from strobe.errors import ConfigError, DataError
from support.duels import Made, said
from support.places import ROOT
from support.processes import begin, ended, git, left_running, wait_for
from support.refusals import refusal

SCRIPT = """
import sys, time
import torch
from lightning.pytorch import LightningModule, Trainer
from pause import SECONDS

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        time.sleep(SECONDS)
        return self.layer(batch).mean()
    def validation_step(self, batch, _):
        raise RuntimeError("a turn is of training only")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

assert "loader=native" in sys.argv, "the overrides are those of the command"
batches = torch.utils.data.DataLoader(torch.rand(24, 4), batch_size=8)
Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False).fit(Model(), batches, batches)
"""
COMMAND = ("--", "python", "train.py", "loader=native")
BY_ENV = ("--", "/usr/bin/env", *COMMAND[1:])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Commits with the tags fast, slow, broken and other, which requires another package; the last one is fast."""
    folder, scratch = tmp_path / "project", Path(tempfile.mkdtemp(prefix="duel-"))  # short, for sockets lie there
    (folder / "src").mkdir(parents=True)
    (tmp_path / "scratch").symlink_to(scratch)
    multiprocessing.forkserver.ensure_running()  # later tests use this server, when the folder is gone
    git(folder, "init", "-q")
    (folder / "train.py").write_text(SCRIPT)
    for tag, pause in (("fast", "0.002"), ("slow", "0.02"), ("broken", "1 / 0"), ("fast-again", "0.002")):
        (folder / "src" / "pause.py").write_text(f"SECONDS = {pause}")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)
    (folder / "requirements.lock").write_text("torch==1.0\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "other")
    git(folder, "tag", "other")
    git(folder, "checkout", "-q", "fast-again")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    yield folder
    shutil.rmtree(scratch)


def nothing_is_left(project: Path) -> bool:
    """No work tree, and no file but what multiprocessing and torch keep."""
    kept = ("pymp-", "torchinductor_")
    assert not [path for path in (project.parent / "scratch").iterdir() if not path.name.startswith(kept)]
    return git(project, "worktree", "list").count("\n") == 0


def test_two_commits_take_turns_and_nothing_is_left(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "train.py").write_text(SCRIPT + "# a change\n")
    options = ("--seconds", "0.1", "--quads", "8", "--fail-if-slower", "5%")
    code, text = said(capsys, *options, "--commit", "fast", "--commit", "slow", *COMMAND)
    assert code == 3, text
    assert "A starts: python train.py loader=native of fast" in text
    assert "B is slower" in text
    assert "The working tree has changes that neither commit holds; --commit . takes it as it is" in text
    assert nothing_is_left(project)


PIP = """#!/bin/sh
# Installs nothing, but fails where a file that it is given is not there.
for word; do
    case $word in install | -r) ;; *) [ -e "$word" ] || exit 9 ;; esac
done
"""


@pytest.mark.slow
@pytest.mark.parametrize(("pause", "code"), [("0.02", 3), ("0.0005", 0)])
def test_the_documented_workflow_closes_the_gate_for_what_is_slower_only(
    pause: str, code: int, project: Path, tmp_path: Path
) -> None:
    """Its commands one by one, with shorter turns, and nothing in the place of pip."""
    page = (ROOT / "docs" / "duel.md").read_text()
    start = page.index("    name: speed\n")
    job = yaml.safe_load(textwrap.dedent(page[start : page.index("\nHosted runners")]))["jobs"]["not-slower"]
    (project / "ci").mkdir()
    for name in ("ci/lightning_strobe-0.1.0-py3-none-any.whl", "requirements.txt"):  # as the page says
        (project / name).touch()
    (project / "train.py").write_text(SCRIPT.replace("assert ", "# assert "))
    for branch, seconds in (("main", "0.005"), ("change", pause)):
        git(project, "checkout", "-q", "-B", branch)
        (project / "src" / "pause.py").write_text(f"SECONDS = {seconds}")
        git(project, "add", ".")
        git(project, "commit", "-qm", branch)
    git(project, "update-ref", "refs/remotes/origin/main", "main")
    tools = {"pip": PIP, "strobe": f'#!/bin/sh\nexec {sys.executable} -m strobe "$@"\n'}
    (tmp_path / "bin").mkdir()
    for name, text in tools.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    search = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    variables = os.environ | {"PATH": search, "PYTHONPATH": os.pathsep.join(sys.path)}
    ends = []
    for step in (step["run"] for step in job["steps"] if "run" in step):
        assert step.startswith("pip ") or "--seconds 2 --quads 12" in step
        line = step.replace("--seconds 2 --quads 12", "--seconds 0.1 --quads 6").replace(
            "${{ github.base_ref }}", "main"
        )
        done = subprocess.run(
            ["bash", "-e", "-c", line], cwd=project, env=variables, capture_output=True, text=True, check=False
        )
        ends.append(done.returncode)
    assert ends == [0, 0, code], done.stdout + done.stderr
    assert nothing_is_left(project)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--commit", "fast", *COMMAND), "two commits and one command, not 1 and 1"),
        (("--commit", "fast", "--commit", "slow", *COMMAND, *COMMAND), "not 2 and 2"),
        (("--commit", "fast", "--commit", "gone", *COMMAND), "--commit gone: there is no such commit in"),
        (
            ("--commit", "--help", "--commit", "fast", *COMMAND),
            "--commit needs a value; one that begins with",
        ),
        (("--commit", "broken", "--commit", "fast", *COMMAND), "A cannot train: ZeroDivisionError: division by zero"),
        (("--commit", ".", "--commit", "other", *BY_ENV), "requires other packages than the working tree"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    arguments: tuple[str, ...],
    message: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strobe.duel.commits._uv", lambda: None)
    code, text = said(capsys, *arguments)
    assert code in (1, 2)
    assert message in text
    assert "Traceback" not in text
    assert nothing_is_left(project)


class Looks(Made):
    """It keeps where it would run, and has imported a file of the working tree, by a link."""

    began: list[tuple[Path, list[str]]] = []  # noqa: RUF012

    def __init__(self, *given: Any, place: Path, variables: dict[str, str], **named: Any) -> None:
        super().__init__(*given, **named)
        self.began.append((place, variables["PYTHONPATH"].split(os.pathsep)))
        self.sources = [place / "pause.py", Path(sys.executable), Path.cwd().parents[1] / "link" / "src" / "pause.py"]


def test_each_runs_in_the_tree_of_its_commit_and_uses_no_other(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "src")
    (project.parent / "link").symlink_to(project)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/elsewhere", str(project / "lib")]))
    (project / "requirements.txt").write_text("numpy")
    given = ("--commit", ".", "--commit", "fast", "--", "python", "../train.py", "rate=1")
    code, text = said(capsys, *given, begin=Looks)
    assert code == 1
    assert f"B uses {project.parent}/link/src/pause.py, which is not of its commit" in text
    assert "what it has installed, but differ in requirements.txt" in text
    (here, _), (there, path) = Looks.began
    assert (here, there.name, there.parent.name) == (project / "src", "src", "tree-B")
    assert path == [str(there), str(there.parent), "/elsewhere", str(there.parent / "lib")]
    assert nothing_is_left(project)


def test_without_a_repository_or_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not in a git repository" in refusal(lambda: Repository(tmp_path), ConfigError)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs git, which is not installed" in refusal(lambda: Repository(tmp_path), ConfigError)


def test_what_requires_the_same_trains_with_this_interpreter_and_else_with_one_of_its_own(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(project)
    assert repository.interpreter("fast") == repository.interpreter(".") == sys.executable
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    uv = tmp_path / "uv"
    monkeypatch.setattr("strobe.duel.commits._uv", lambda: [str(uv)])
    case = f'case $1 in venv) mkdir -p "$4";; *) [ -e {tmp_path}/allowed ];; esac'
    uv.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/asked\n{case}\n')
    uv.chmod(0o755)
    assert f"could not be made; for the reason, run: {uv} pip sync" in refusal(
        lambda: repository.interpreter("other"), DataError
    )
    (tmp_path / "allowed").touch()
    (tmp_path / "cache").mkdir(exist_ok=True)
    python = Path(repository.interpreter("other"))
    assert python.is_relative_to(tmp_path / "cache")
    assert repository.interpreter("other") == str(python)  # from the cache
    assert (tmp_path / "asked").read_text().split() == ["venv", "pip", "venv", "pip"]
    (project / "pyproject.toml").write_text('[project.optional-dependencies]\napp = ["hydra-core"]\n')
    assert repository.interpreter("fast") == sys.executable  # it does not lock what it requires
    assert repository.unlike(".", "fast") == ["pyproject.toml"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "B starts"),  # while both train
        pytest.param(signal.SIGTERM, "starts", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "Taking turns", marks=pytest.mark.slow),  # one of them is stopped
        pytest.param(signal.SIGHUP, "Taking turns", marks=pytest.mark.slow),
    ],
)
def test_when_it_is_interrupted_nothing_is_left(number: signal.Signals, said: str, project: Path) -> None:
    options = ("--quads", "400", "--commit", "fast", "--commit", "slow")
    process = begin("-u", "-m", "strobe.duel", *options, *COMMAND, cwd=project, PYTHONPATH=os.pathsep.join(sys.path))
    assert process.stdout
    while said not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    last = ended(process, 128 + number)
    assert "There is no result, and neither training goes on." in last
    assert {signal.SIGINT: "Ctrl-C"}.get(number, number.name) in last
    assert nothing_is_left(project)
    assert wait_for(lambda: not left_running(os.environ["PYTEST_CURRENT_TEST"]), 60)
