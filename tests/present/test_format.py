"""Numbers as text."""

import pytest

from strobe.present import format as as_text
from strobe.present.format import TIMES


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (as_text.figure(1234.4), "1,234"),
        (as_text.figure(99.96), "100"),
        (as_text.figure(78.57), "78.6"),
        (as_text.figure(4.567), "4.57"),
        (as_text.figure(0.012345), "0.0123"),
        (as_text.figure(0.0), "0"),
        (as_text.figure(1e-300), "0.000000000"),
        (as_text.figure(float("inf")), "inf"),
        (as_text.rate(1060.4), "1,060"),
        (as_text.rate(9.96), "10"),
        (as_text.pace(3.14), "3.1 images/s"),
        (as_text.percent(0.614), "61%"),
        (as_text.percent(0.001), "<1%"),
        (as_text.percent(0.0), "0%"),
        (as_text.times(1.834), f"1.83{TIMES}"),
        (as_text.times(123.4), f"123{TIMES}"),
        (as_text.as_fast(1.834), "1.8x as fast"),
        (as_text.as_fast(1.256), "1.26x as fast"),
        (as_text.listed([]), ""),
        (as_text.listed(["a"]), "a"),
        (as_text.listed(["a", "b", "c"]), "a, b and c"),
        (as_text.counted(1, "step"), "1 step"),
        (as_text.counted(2000, "step"), "2,000 steps"),
        (as_text.milliseconds(0.00033), "0.33"),
        (as_text.milliseconds(0.0437), "43.7"),
        (as_text.milliseconds(1.3139), "1,314"),
        (as_text.duration(0.000331), "331 µs"),
        (as_text.duration(0.0437), "43.7 ms"),
        (as_text.duration(1.8551), "1.86 s"),
        (as_text.duration(750), "12.5 min"),
        (as_text.duration(90_000), "25 h"),
        (as_text.size(512), "512 B"),
        (as_text.size(1_604_608_000), "1.6 GB"),
        (as_text.size(5e15), "5,000 TB"),
        (as_text.interval(75.0, 80.71), "75.0 to 80.7"),
        (as_text.interval(None, 80.7), ""),
        (as_text.interval(4e-9, 9.5e8), "interval too wide"),
        (as_text.estimate({"median": 62.7, "low": 50.4, "high": 78.1}), "62.7 (50.4 to 78.1)"),
        (as_text.estimate({"median": 62.7, "low": 62.7, "high": 62.7}), "62.7"),
        (as_text.estimate({"median": 62.7, "low": None, "high": None}), "62.7"),
        (as_text.estimate({"median": None, "low": None, "high": None}), ""),
        (as_text.estimate(None), ""),
        (as_text.written(2_000_000), "2 M"),
        (as_text.written(0.5), "0.5"),
        (as_text.cut("abcdef", 4), "abc…"),
    ],
)
def test_numbers_have_the_digits_and_the_unit_that_suit(text: str, told: str) -> None:
    assert text == told


@pytest.mark.parametrize(
    ("sentence", "name", "told"),
    [
        ("Other processes took 72% of the cores", "", "other processes took 72% of the cores"),
        ("A process grows", "", "a process grows"),
        ("61% of each step waits for data", "", "61% of each step waits for data"),
        ("DataLoader workers restart", "", "DataLoader workers restart"),
        ("GPU memory is short", "", "GPU memory is short"),
        ("Python's garbage collection takes 5%", "", "Python's garbage collection takes 5%"),
        ("Audit takes 5% of each step", "Audit", "Audit takes 5% of each step"),
        ("Saving checkpoints takes 5%", "ModelCheckpoint", "saving checkpoints takes 5%"),
        ("", "", ""),
    ],
)
def test_only_names_keep_their_capital_within_a_sentence(sentence: str, name: str, told: str) -> None:
    assert as_text.inside(sentence, name) == told
