"""A against B, by turns."""
