"""What runs, sweeps and suites leave on the disk, and reading it."""
