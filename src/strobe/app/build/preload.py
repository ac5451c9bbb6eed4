"""The libraries that the server of fresh processes imports once for all of them; nothing is started."""

import os
from importlib import import_module

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's and SciPy's, read when they are loaded
for name in ("lightning", "lightning.pytorch.loggers", "numpy", "torch", "strobe.app.build.instantiate"):
    import_module(name)
