"""Data sets that lie in storage: S3, and what else LitData's client reaches."""
