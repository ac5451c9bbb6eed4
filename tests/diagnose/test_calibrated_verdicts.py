"""Verdicts with the calibration that the program comes with, as users see them; other tests have none."""

import re

import pytest

from strobe.diagnose import calibrated
from strobe.diagnose.promise import bound, gain
from strobe.diagnose.rank import diagnose, verdict
from support.recorded import RECORDED, recorded

SHIPPED = calibrated.calibration


def test_no_verdict_promises_what_its_interval_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrated, "calibration", SHIPPED)
    levels, promised = set(), 0
    for name in RECORDED:
        record, _ = recorded(name)
        findings = diagnose(record)
        first, said = findings[0].predicted_speedup, verdict(record, findings)
        levels |= {finding.predicted_speedup.level for finding in findings}
        if "Predicted: " in said:
            promised += 1
            assert first.low > 1, (name, said)
            assert first.low <= first.median <= first.high, (name, said)
        for finding in findings:
            told = finding.as_dict()
            assert not gain(told) or finding.predicted_speedup.low > 1, (name, finding.title)
            most = re.search(r"([\d.]+)x as fast", bound(told))
            assert most is None or float(most[1]) > 1, (name, bound(told))
    assert 0.9 in levels  # some are stretched
    assert promised
