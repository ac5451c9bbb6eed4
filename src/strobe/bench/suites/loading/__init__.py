"""From files to batches."""
