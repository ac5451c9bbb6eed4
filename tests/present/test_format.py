"""Numbers as text."""

import pytest

from strobe.present.format import (
    TIMES,
    counted,
    cut,
    duration,
    estimate,
    figure,
    interval,
    milliseconds,
    pace,
    percent,
    rate,
    size,
    times,
    written,
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (figure(1234.4), "1,234"),
        (figure(99.96), "100"),
        (figure(78.57), "78.6"),
        (figure(4.567), "4.57"),
        (figure(0.012345), "0.0123"),
        (figure(0.0), "0"),
        (figure(1e-300), "0.000000000"),
        (figure(float("inf")), "inf"),
        (rate(1060.4), "1,060"),
        (rate(9.96), "10"),
        (pace(3.14), "3.1 images/s"),
        (percent(0.614), "61%"),
        (percent(0.001), "<1%"),
        (percent(0.0), "0%"),
        (times(1.834), f"1.83{TIMES}"),
        (times(123.4), f"123{TIMES}"),
        (counted(1, "step"), "1 step"),
        (counted(2000, "step"), "2,000 steps"),
        (milliseconds(0.00033), "0.33"),
        (milliseconds(0.0437), "43.7"),
        (milliseconds(1.3139), "1,314"),
        (duration(0.000331), "331 µs"),
        (duration(0.0437), "43.7 ms"),
        (duration(1.8551), "1.86 s"),
        (duration(750), "12.5 min"),
        (duration(90_000), "25 h"),
        (size(512), "512 B"),
        (size(1_604_608_000), "1.6 GB"),
        (size(5e15), "5,000 TB"),
        (interval(75.0, 80.71), "75.0 to 80.7"),
        (interval(None, 80.7), ""),
        (interval(4e-9, 9.5e8), "too wide to tell"),
        (estimate({"median": 62.7, "low": 50.4, "high": 78.1}), "62.7 (50.4 to 78.1)"),
        (estimate({"median": 62.7, "low": 62.7, "high": 62.7}), "62.7"),
        (estimate({"median": 62.7, "low": None, "high": None}), "62.7"),
        (estimate({"median": None, "low": None, "high": None}), ""),
        (estimate(None), ""),
        (written(2_000_000), "2 M"),
        (written(0.5), "0.5"),
        (cut("abcdef", 4), "abc…"),
    ],
)
def test_numbers_have_the_digits_and_the_unit_that_suit(text: str, told: str) -> None:
    assert text == told
