"""Compiles the operators once a machine and torch version, and loads them.

A compiled library lies in a folder of the user's cache, named after everything that it depends on. It uses torch's
stable ABI (https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html), and no instruction beyond the
architecture's baseline.
"""

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from strobe.errors import DataError
from strobe.locking import locked

_log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


@dataclass(frozen=True)
class Library:
    """Operators that are compiled together."""

    name: str
    sources: tuple[str, ...]  # in this folder
    links: tuple[str, ...] = ()  # system libraries
    headers: tuple[str, ...] = ()  # of those
    packages: str = ""  # of Debian and Ubuntu that bring them
