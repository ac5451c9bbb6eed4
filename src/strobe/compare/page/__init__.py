"""``comparison.html``: one self-contained file about many runs, from their comparison alone. Imports no torch."""

from strobe.compare.page.page import NAME, render, write_comparison

__all__ = ["NAME", "render", "write_comparison"]
