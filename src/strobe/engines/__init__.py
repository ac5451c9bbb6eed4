"""How loading overlaps training."""
