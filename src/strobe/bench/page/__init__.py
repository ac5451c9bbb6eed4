"""The offline page and the pictures of a suite's results, from their record alone. Imports no torch."""

from strobe.bench.page.page import write_page, write_pictures

__all__ = ["write_page", "write_pictures"]
