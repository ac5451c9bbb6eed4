"""A against B, in turns."""
