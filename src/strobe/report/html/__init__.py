"""``report.html``: one self-contained file about a run, from its records alone. Imports no torch."""

from strobe.report.html.page import render, write_report

__all__ = ["render", "write_report"]
