"""The command ``strobe tune``: of somebody else's script, or of a configuration of this project's ``train.py``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import sys
from pathlib import Path

from strobe.process.launch import start
from strobe.tune.script import is_script

APPLICATION = Path(__file__).parents[3] / "train.py"


def main() -> None:
    """Search."""
    given = sys.argv[1:]
    here = APPLICATION.is_file() and (given or Path.cwd() == APPLICATION.parent)  # else it is a script's folder
    if is_script(given, APPLICATION) or not (here or any("=" in word for word in given)):
        from strobe.tune.command import main as of_a_script

        of_a_script()
    else:
        import strobe.app.needed  # noqa: F401
        from strobe.app.tuning.entry import main as of_the_application

        of_the_application()


if __name__ == "__main__":
    start(main)
