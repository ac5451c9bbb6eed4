"""Do the tests pass with other Pythons, libraries and compilers than the locked ones?

``python -m strobe.validation.matrix [ENVIRONMENT ...] [-- PYTEST ARGUMENTS]``, or ``make matrix``. For each environment
uv makes one outside the checkout, and the whole of ``make test`` runs in it, or what the arguments select. The table
says how many tests passed, were skipped and failed, and with what. Exit code 1: a test failed, or an environment could
not be made. An environment takes 7 GB while it is tried, and as long as ``make test``.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from strobe.present import terminal
from strobe.present.format import duration
from strobe.process.signals import interruptible
from strobe.validation import experiment

CHECKOUT = Path(__file__).parents[3]
LOCKED = ("--require-hashes", "-r", "requirements.lock")
SHOWN = ("torch", "lightning", "torchvision", "numpy")
SAID = 300  # characters of an error
LENIENT = ("Import", "Deprecation", "PendingDeprecation", "Future")  # warnings of one library's version to another
COUNTED = ("passed", "failed", "error", "skipped")


@dataclass(frozen=True)
class Environment:
    """What the tests run in: a Python, how its packages are chosen, and a compiler of the native operators."""

    python: str
    packages: tuple[str, ...] = LOCKED  # arguments of ``uv pip install``
    compiler: str = "g++"


OLDEST = ("--resolution", "lowest-direct", ".[dev]")
NEWEST = ("--upgrade", ".[dev]")
ENVIRONMENTS = {
    "locked-3.11": Environment("3.11"),
    "locked-3.12": Environment("3.12"),
    "locked-3.13": Environment("3.13"),
    "oldest-3.11": Environment("3.11", OLDEST),
    "newest-3.13": Environment("3.13", NEWEST),
    "newest-3.11": Environment("3.11", NEWEST),
    "clang-3.11": Environment("3.11", compiler="clang++"),
}


def made(environment: Environment, folder: Path) -> dict[str, str]:
    """Make an environment; returns the versions in it, and a RuntimeError says why it cannot be made."""
    if shutil.which(environment.compiler) is None:
        raise RuntimeError(f"{environment.compiler} is not installed")
    python = folder / ".venv" / "bin" / "python"
    uv = (sys.executable, "-m", "uv")
    for command in (
        ("git", "clone", "--quiet", str(CHECKOUT), str(folder)),
        (*uv, "venv", "--quiet", "--python", environment.python, str(folder / ".venv")),
        (*uv, "pip", "install", "--quiet", "--python", str(python), *environment.packages),
        (*uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps", "--editable", "."),
    ):
        tried = subprocess.run(
            command, cwd=folder if folder.exists() else None, capture_output=True, text=True, check=False
        )
        if tried.returncode:
            raise RuntimeError(f"{' '.join(command[:4])} says: {' '.join(tried.stderr.split())[:SAID]}")
    listed = subprocess.run([*uv, "pip", "freeze", "--python", str(python)], capture_output=True, text=True, check=True)
    return dict(re.findall(r"^([\w-]+)==(.+)$", listed.stdout, re.MULTILINE))


def tested(environment: Environment, folder: Path, selected: Sequence[str]) -> tuple[dict[str, int], str]:
    """How many tests passed, failed and were skipped, and the whole of what pytest said."""
    command = [".venv/bin/python", "-m", "pytest", "--numprocesses", "2", "--dist", "loadfile", *selected]
    if environment.packages != LOCKED:
        command += [f"-Wignore::{kind}Warning" for kind in LENIENT]
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ours |= {"OMP_WAIT_POLICY": "passive"} | ({} if environment.compiler == "g++" else {"CXX": environment.compiler})
    ended = subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True, check=False)
    counts = {kind: int(count) for count, kind in re.findall(rf"(\d+) ({'|'.join(COUNTED)})s?\b", ended.stdout)}
    return counts, ended.stdout + ended.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the environments, and print the table; 1 if one failed."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    ours = words.index("--") if "--" in words else len(words)
    parser = experiment.arguments("matrix", (__doc__ or "").partition("\n")[0], seed="of the tests' order")
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help=f"of {', '.join(ENVIRONMENTS)} (all)")
    wanted = parser.parse_args(words[:ours])
    if unknown := [name for name in wanted.environments if name not in ENVIRONMENTS]:
        parser.error(f"{unknown[0]} is not an environment; give some of {', '.join(ENVIRONMENTS)}")
    console, failed = terminal.console(), 0
    table = Table("environment", *SHOWN, *COUNTED, "time")
    with interruptible(), experiment.folder_of(wanted.keep) as scratch:
        for name in wanted.environments or ENVIRONMENTS:
            folder, began = scratch / name, time.monotonic()
            try:
                versions = made(ENVIRONMENTS[name], folder)
            except RuntimeError as why:
                terminal.say(console, f"{name} was not tried: {why}")
                table.add_row(name, *["-"] * len((*SHOWN, *COUNTED)), "")
                failed += 1
                continue
            counts, output = tested(ENVIRONMENTS[name], folder, [f"--randomly-seed={wanted.seed}", *words[ours + 1 :]])
            (scratch / f"{name}.log").write_text(output)
            terminal.say(console, *(line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))))
            bad = not counts.get("passed") or counts.get("failed", 0) + counts.get("error", 0)
            failed += bool(bad)
            table.add_row(
                name,
                *(versions.get(package, "?") for package in SHOWN),
                *(str(counts.get(kind, 0)) for kind in COUNTED),
                duration(time.monotonic() - began),
            )
            if wanted.keep is None:
                shutil.rmtree(folder)
    console.print(table)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
