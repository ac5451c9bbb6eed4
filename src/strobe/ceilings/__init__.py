"""Throughput with one side removed: loading while nobody trains, and training on one batch that is there already.

Measurements leave a run as it was: weights, random numbers, the order of its batches, threads and flags of torch.
"""
