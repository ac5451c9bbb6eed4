"""Measures cells, each in fresh processes, in random interleaved order, until a budget of time or precision is met."""
