"""What runs, sweeps and suites leave on the disk, and how to read it."""
