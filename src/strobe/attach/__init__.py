"""Strobe on a training that somebody else wrote: a callback, and an entry point that adds it. See docs/attach.md."""
