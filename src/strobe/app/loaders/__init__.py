"""How bytes become pixels: one backend per file over one protocol."""
