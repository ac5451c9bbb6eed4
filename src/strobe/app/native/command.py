"""``strobe native``: Compiles the C++ operators now, or says what is missing and how to install it.

With --install, it installs missing system packages if it runs as root on Debian or Ubuntu; other users see the
command, and are never asked for a password.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence

from strobe.app.native import convolution, photos, tiles
from strobe.app.native.build import Library, compiled, load, missing
from strobe.app.native.system import BROWSERS, FFMPEG, FFMPEG_SERVES, browser, compiler, has_ffmpeg
from strobe.app.native.system import install as installs
from strobe.errors import DataError
from strobe.process.launch import parser_of

LIBRARIES = (tiles.LIBRARY, photos.LIBRARY, convolution.LIBRARY)
APT_SECONDS = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an operator is not ready; always 0 with ``--install``, because setup continues without it."""
    parser = parser_of("native", (__doc__ or "").partition(": ")[2])
    parser.add_argument("--install", action="store_true", help="install what is missing, as root on Debian or Ubuntu")
    parser.add_argument("--tests", action="store_true", help="with --install: also what only the tests need, a browser")
    options = parser.parse_args(arguments)
    install = options.install
    if install and (packages := needed(tests=options.tests)):
        print(install_packages(packages), flush=True)
    ready = [_prepare(library) for library in LIBRARIES]
    if has_ffmpeg():
        print("ffmpeg: found")
    else:
        print(f"ffmpeg: its libraries are missing; only {FFMPEG_SERVES} needs them: {installs([FFMPEG])}")
    return 0 if install or all(ready) else 1


def needed(*, tests: bool = False) -> dict[str, list[str]]:
    """The missing packages of Debian and Ubuntu, and what each of them is for; those of the tests if asked for."""
    packages: dict[str, list[str]] = {}
    for library in LIBRARIES:
        for package in library.packages if missing(library) else ():
            if package != "g++" or compiler() is None:
                packages.setdefault(package, []).append(library.serves)
    if not has_ffmpeg():
        packages[FFMPEG] = [FFMPEG_SERVES]
    if tests and browser() is None:
        packages[BROWSERS[0]] = ["the tests of pages"]
    return packages


def install_packages(packages: Mapping[str, Sequence[str]]) -> str:
    """Say what is missing and what for, then install it if this user may; returns a sentence on how that went."""
    names = " ".join(packages)
    print("install: these system packages are missing; all that does not need them works without:")
    for package, purposes in packages.items():
        print(f"    {package:<12} for {', '.join(purposes)}")
    apt = shutil.which("apt-get")
    if apt is None:
        return f"install: this system has no apt-get; install what Debian calls {names} with its package manager"
    if os.geteuid() != 0:
        return f"install: only root can install them; type: sudo apt-get install {names}"
    print(f"install: running apt-get install {names} as root (to leave this out: make setup SYSTEM=no) ...", flush=True)
    options = ("Acquire::Retries=0", "Acquire::http::Timeout=20", "DPkg::Lock::Timeout=60")
    command = [apt, "-qq", *(word for option in options for word in ("-o", option))]
    adding = [*command, "install", "--yes", "--no-install-recommends", *packages]
    for step in (adding, [*command, "update"], adding):  # lists of packages are often not there, or old
        failure = _run(step)
        if failure is None and step is adding:
            return f"install: {names}: done"
    return f"install: {names} could not be installed ({failure}); type: sudo apt-get install {names}"


def _run(command: Sequence[str]) -> str | None:
    """What went wrong, in one sentence; empty if nothing did."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=APT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else None


def _prepare(library: Library) -> bool:
    start = time.perf_counter()
    try:
        load(library)
    except DataError as error:
        print(f"{library.name}: {error}", flush=True)
        return False
    print(f"{library.name}: ready ({time.perf_counter() - start:.2f} s, {compiled(library)})", flush=True)
    return True
