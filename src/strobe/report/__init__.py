"""A run's results for people: the page, the terminal, TensorBoard."""
