"""What operators and loaders need of the operating system: a compiler, headers, libraries. Imports no torch."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from ctypes.util import find_library
from pathlib import Path

COMPILERS = ("g++", "c++", "clang++")
WRAPPERS = ("ccache", "sccache", "distcc")
JPEG = "jpeglib.h"  # of libjpeg-turbo
PHOTOS = ("g++", "libjpeg-dev")  # packages of Debian and Ubuntu, with all that operators on photos need
BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # the first is Debian's package, too
FFMPEG, FFMPEG_SERVES = "ffmpeg", "loader=spdl"  # the package whose libraries SPDL loads


def compiler() -> str | None:
    """The C++ compiler: the one in the variable ``CXX``, without its options, or else one that is installed."""
    named = named_compiler()
    return next((path for name in ((named,) if named else COMPILERS) if (path := shutil.which(name))), None)


def named_compiler() -> str | None:
    """The compiler in the variable ``CXX``."""
    words = os.environ.get("CXX", "").split()
    if words and Path(words[0]).name in WRAPPERS:
        words = words[1:]
    return words[0] if words else None


def lacks(header: str | None = None) -> str | None:
    """What is missing to compile something with this header; None if nothing is missing."""
    program = compiler()
    if program is None:
        named = named_compiler()
        return f"the compiler {named} (variable CXX)" if named else "a C++ compiler (g++, c++ or clang++)"
    if header:
        text, arguments = f"#include <cstdio>\n#include <{header}>\n", ["-x", "c++", "-fsyntax-only", "-"]
        if subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False).returncode:
            return f"the header {header}"
    return None


def has_ffmpeg() -> bool:
    """Whether FFmpeg's libraries are installed."""
    return find_library("avcodec") is not None


def browser() -> str | None:
    """A browser in which tests look at pages."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def install(packages: Sequence[str]) -> str:
    """The command that installs packages on Debian and Ubuntu."""
    return f"sudo apt-get install {' '.join(packages)}"
