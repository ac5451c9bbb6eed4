"""What every number rests on: statistics, timing, rounds, and the state of the machine."""
