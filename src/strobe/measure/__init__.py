"""What every number rests on: statistics, timing, rounds, and the state of the machine."""

WIDEST = 3.0  # the factor between the ends of an interval, beyond which they say too little to be shown
