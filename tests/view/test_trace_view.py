"""``strobe view TRACE...``: one page for any traces."""

import gzip
import re
from pathlib import Path

import pytest

from strobe.errors import StrobeError
from strobe.view.__main__ import main
from support.places import DATA
from support.refusals import refusal

A100 = DATA / "traces" / "gpu_training_a100.json.gz"
needs_traces = pytest.mark.skipif(not A100.exists(), reason="needs the public traces in shared/data")


@needs_traces
def test_traces_become_one_page_that_says_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, half = tmp_path / "page.html", tmp_path / "half.json.gz"
    half.write_bytes(A100.read_bytes()[: A100.stat().st_size // 2])
    main([str(A100), str(half), "--baseline", str(A100), "--out", str(out), "--no-open"])
    assert f"page      {out}" in capsys.readouterr().out
    page = out.read_text()
    assert "half.json.gz ends in the middle: what could be read until there is shown" in page
    assert 'id="operator=aten::mm"' in page
    assert not re.findall(r"(?:src|url\()=?\W*http", page)
    assert set(re.findall(r"https?://[^/\"?]+", page)) <= {"http://127.0.0.1:9001", "http://www.w3.org"}


@pytest.mark.parametrize("content", [b"", b"{", b'{"steps": 1}', gzip.compress(b'{"traceEvents": [')[:-9]])
def test_what_holds_no_events_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    said = refusal(lambda: main([str(path)]), (SystemExit, StrobeError))
    assert said.startswith(f"{path} holds no trace events")
    assert "\n" not in said
