"""What traces of any program show: steps, idle time and why, operators, kernels, memory, ranks; pure functions."""
