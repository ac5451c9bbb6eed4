"""Lengths of time that may overlap, as pairs of start and end in one unit."""

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What at least one of them holds, in order and apart."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def covered(intervals: Iterable[Interval], windows: list[Interval]) -> float:
    """For how long at least one of them lasts within the windows, which are in order and apart."""
    total, first = 0.0, 0
    for start, end in union(intervals):
        while first < len(windows) and windows[first][1] <= start:
            first += 1
        place = first
        while place < len(windows) and windows[place][0] < end:
            total += min(end, windows[place][1]) - max(start, windows[place][0])
            place += 1
    return total


def inside(time: float, windows: list[Interval]) -> bool:
    """Whether a time lies in one of the windows, which are in order and apart."""
    place = bisect_right(windows, time, key=itemgetter(0)) - 1
    return place >= 0 and time < windows[place][1]
