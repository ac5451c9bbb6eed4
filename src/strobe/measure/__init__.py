"""Where every figure comes from: statistics, timing, rounds, and the state of the machine."""

WIDEST = 3.0  # an interval whose ends differ by more than this factor says too little to be shown
