"""Runs a program in this process as ``python`` would, and keeps what Hydra writes out of its folder.

It is also loaded by its path, in another environment, so it imports nothing from Strobe.
"""

import functools
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import is_zipfile

_RUNPY = runpy.run_module.__code__.co_filename


def run(words: list[str]) -> None:
    """Become a script, or the module after ``-m``, with its arguments; its ``__file__`` is absolute, as Python's is."""
    module = words[0] == "-m"
    sys.argv[:] = words[module:]
    path = Path(sys.argv[0]).absolute()
    if not getattr(sys.flags, "safe_path", False):  # else Python adds nothing to its path
        sys.path[0] = str(Path.cwd() if module else path.resolve().parent)
    if module or path.is_dir() or is_zipfile(path):
        try:
            if module:
                runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(path), run_name="__main__")
        except ImportError as error:
            if traceback.extract_tb(error.__traceback__)[-1].filename == _RUNPY:  # it is not there, as python would say
                sys.exit(f"{sys.executable}: {error}")
            raise
    else:  # runpy would alter sys.argv, and take the script's module away at its end
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__ = str(path)
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(main))


class Hydra:
    """Lets Hydra write into another folder, unless the command says where."""

    def __init__(self, folder: str) -> None:
        self._override = f"hydra.run.dir='{folder}'"

    def __call__(self, package: Any) -> None:
        """Add an override to what ``hydra.main`` reads."""
        main = package.main

        @functools.wraps(main)
        def decorator(*given: Any, **named: Any) -> Any:
            decorate = main(*given, **named)

            def decorated(task: Any) -> Any:
                run = decorate(task)

                @functools.wraps(run)
                def begin(*configured: Any) -> Any:
                    if not configured and not any(word.lstrip("+").startswith("hydra.run.dir=") for word in sys.argv):
                        sys.argv.append(self._override)
                    return run(*configured)

                return begin

            return decorated

        package.main = decorator
