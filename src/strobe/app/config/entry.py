"""Wraps ``hydra.main``: prints help, and a user's mistake as one sentence. Imports no torch."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode

from strobe.app.config.checks import leave_folder
from strobe.app.config.help import text
from strobe.app.config.mistakes import MISTAKES, mistake, no_option, require_values
from strobe.errors import ConfigError, StrobeError
from strobe.process.launch import refuse
from strobe.process.output import lasting_output
from strobe.process.signals import heard, over


@contextmanager
def command(name: str) -> Iterator[None]:
    """Wraps a function of ``hydra.main`` with the configuration ``name``: prints help, and mistakes as one sentence."""
    lasting_output()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises what it would print
    try:
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(text(name, [given for given in sys.argv[1:] if given[0] != "-"]))
            sys.exit(0)
        given, unknown = get_args_parser().parse_known_args()
        unknown += ["--experimental-rerun"] if given.experimental_rerun else []  # of a file of Hydra's own
        if unknown:
            raise ConfigError(no_option(unknown[0], name))
        require_values(given.overrides)
        yield
    except MISTAKES as error:
        refuse(mistake(error, name, sys.argv[1:]))
    except Exception:  # a bug
        if (number := heard()) is not None:
            sys.exit(128 + number)
        traceback.print_exc()
        sys.exit(1)
    finally:
        leave_folder()
        over()


@contextmanager
def task() -> Iterator[None]:
    """Within such a function: a mistake ends the command at once, or is raised if a launcher runs several jobs."""
    try:
        yield
    except StrobeError as error:
        if HydraConfig.get().mode == RunMode.RUN:
            refuse(error)
        raise CompactHydraException(str(error)) from error
