"""Commits of a project to train from: each in a git work tree, with an environment that meets its requirements."""

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from strobe.errors import ConfigError, DataError
from strobe.process.signals import noted

WORKING_TREE = "."
LOCK, PROJECT = "requirements.lock", "pyproject.toml"
PACKAGES = (LOCK, PROJECT, "requirements.txt", "uv.lock", "poetry.lock", "environment.yml", "setup.cfg", "setup.py")


class Repository:
    """The git repository that a directory lies in; raises a ConfigError where there is none."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("git") is None:
            raise ConfigError("--commit needs git, which is not installed; install it, or give two commands")
        found = _ran(["git", "-C", str(directory), "rev-parse", "--show-toplevel"])
        if found is None:
            raise ConfigError(f"--commit: {directory.absolute()} is not in a git repository; change to one")
        self.root = Path(found)

    def resolved(self, commit: str) -> str:
        """A commit's full name, or ``.`` for the working tree as it is; raises a ConfigError if it does not exist."""
        if commit == WORKING_TREE:
            return commit
        found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        if found is None:
            raise ConfigError(
                f"--commit {commit}: there is no such commit in {self.root}; give one from git log, or . for the "
                "working tree as it is"
            )
        return found

    @property
    def dirty(self) -> bool:
        """Whether tracked files have uncommitted changes."""
        return bool(self._git("status", "--porcelain", "--untracked-files=no"))

    @contextlib.contextmanager
    def tree(self, commit: str, folder: Path) -> Iterator[Path]:
        """A work tree of a resolved commit in a new folder, which is removed after the block."""
        if commit == WORKING_TREE:
            yield self.root
            return
        try:
            with noted() as came:  # git leaves unfinished work behind
                added = self._git("worktree", "add", "--detach", str(folder), commit)
            if came:
                raise KeyboardInterrupt(came[0])
            if added is None:
                raise DataError(
                    f"--commit {commit[:12]} cannot be checked out; for the reason, run: "
                    f"git worktree add --detach {folder} {commit}"
                )
            yield folder
        finally:
            with noted():
                self._git("worktree", "remove", "--force", str(folder))

    def unlike(self, one: str, other: str) -> list[str]:
        """The names of the files that say which packages are needed, and differ between two resolved commits."""
        return [name for name in PACKAGES if self._read(one, name) != self._read(other, name)]

    def interpreter(self, commit: str) -> str:
        """A Python with the packages that a commit requires: this one, if the working tree requires the same.

        Otherwise one in a cached folder, made by uv from the commit's ``requirements.lock``; this one if it has none.

        Raises:
            DataError: it cannot be made.
        """
        lock, name, uv = self._read(commit, LOCK), commit[:12], _uv()
        if lock is None or self._required(commit) == self._required(WORKING_TREE):
            return sys.executable
        if uv is None:
            raise DataError(
                f"--commit {name} requires other packages than the working tree, and no environment can be made for "
                "it: uv is not installed; compare commits that require the same"
            )
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strobe" / "environments"
        folder = cache / hashlib.sha256(f"{sys.version}{lock}".encode()).hexdigest()[:16]
        python, done = str(folder / "bin" / "python"), folder / LOCK
        if not done.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            cache.mkdir(parents=True, exist_ok=True)
            wanted = folder.with_suffix(".txt")
            wanted.write_text(lock)
            for words in (["venv", "--python", sys.executable, folder], ["pip", "sync", "--python", python, wanted]):
                if _ran([*uv, *map(str, words)]) is None:
                    raise DataError(
                        f"--commit {name}: its environment could not be made; for the reason, run: "
                        f"{shlex.join([*uv, *map(str, words)])}"
                    )
            wanted.rename(done)
        return python

    def _required(self, commit: str) -> tuple[str | None, object]:
        project = {}
        with contextlib.suppress(tomllib.TOMLDecodeError):
            project = tomllib.loads(self._read(commit, PROJECT) or "").get("project", {})
        extra = project.get("optional-dependencies", {}).get("app")  # what train.py needs
        return self._read(commit, LOCK), (project.get("requires-python"), project.get("dependencies"), extra)

    def _read(self, commit: str, name: str) -> str | None:
        if commit != WORKING_TREE:
            return self._git("show", f"{commit}:{name}")
        path = self.root / name
        return path.read_text().strip() if path.is_file() else None

    def _git(self, *words: str) -> str | None:
        return _ran(["git", "-C", str(self.root), *words])


def _uv() -> list[str] | None:
    """The uv command: in this environment, or on the path."""
    if find_spec("uv"):
        return [sys.executable, "-m", "uv"]
    return ["uv"] if shutil.which("uv") else None


def _ran(command: list[str]) -> str | None:
    """A command's output; None if it fails. Ctrl-C in a terminal does not reach it, so it is never cut short."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    return done.stdout.strip() if done.returncode == 0 else None
