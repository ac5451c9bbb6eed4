"""Where there is a compiler for the project's operators."""

import pytest

from strobe.app.native import tiles
from strobe.app.native.build import Library, missing


def needs_compiler(library: Library = tiles.LIBRARY) -> pytest.MarkDecorator:
    lacking = missing(library)
    return pytest.mark.skipif(lacking is not None, reason=f"{lacking} is missing")
