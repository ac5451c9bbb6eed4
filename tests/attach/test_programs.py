"""Scripts as strangers write them, unmodified, each with a bottleneck that its first lines name."""

from pathlib import Path

import pytest
import torch

from support.programs import Script, install, records, run, scripts

pytestmark = pytest.mark.filterwarnings("ignore")  # what a script's own choices make Lightning say


@pytest.mark.parametrize(
    "script", [pytest.param(one, marks=pytest.mark.slow if one.slow else (), id=str(one)) for one in scripts()]
)
def test_a_script_is_understood_and_not_disturbed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    watched = run(script, tmp_path / "watched", monkeypatch, watched=True)
    alone = run(script, tmp_path / "alone", monkeypatch, watched=False)
    assert watched
    torch.testing.assert_close(watched, alone, rtol=0, atol=0)
    found = records(tmp_path / "watched")
    assert len(found) == len(watched)
    for one in found:
        first = one["findings"][0]
        right = [
            first["cause"] == cause and subject in ("", first["subject"]) and words in one["verdict"]
            for cause, subject, words in script.causes
        ]
        busy = first["cause"] == "shared_machine"  # which only a script with workers, on the machine's time, is told
        assert any(right) or busy, one["verdict"]
