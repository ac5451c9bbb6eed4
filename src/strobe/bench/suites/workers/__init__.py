"""Pipelines from photo files to batches."""
