"""One kernel in ten ways, how their times grow, and where profilers see the time of one go."""
