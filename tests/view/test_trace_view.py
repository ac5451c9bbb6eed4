"""``strobe view TRACE...``: one page for any traces."""

import gzip
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from strobe.callbacks.tracefile import read_trace, write_trace
from strobe.errors import StrobeError
from strobe.view.__main__ import main
from support.browser import CHROMIUM, chromium, measured
from support.made_traces import made
from support.pages import HOSTILE
from support.refusals import refusal


def test_traces_become_one_page_that_says_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, half = tmp_path / "page.html", tmp_path / "half.json.gz"
    whole = made(tmp_path / "whole.json.gz", steps=400)
    half.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    hostile = read_trace(whole)
    hostile["traceEvents"][3]["name"] = HOSTILE
    write_trace(whole, hostile)
    main([str(whole), str(half), "--baseline", str(whole), "--out", str(out), "--no-open"])
    assert f"page      {out}" in capsys.readouterr().out
    page = out.read_text()
    assert "half.json.gz ends in the middle: what could be read until there is shown" in page
    assert 'id="operator=aten::mm"' in page
    assert HOSTILE not in page
    assert not re.findall(r"(?:src|url\()=?\W*http", page)
    assert set(re.findall(r"https?://[^/\"?]+", page)) <= {"http://127.0.0.1:9001", "http://www.w3.org"}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"steps": 1}', gzip.compress(b'{"traceEvents": [')[:-9]],
    ids=["empty", "cut", "steps", "cut-gzip"],
)
def test_what_holds_no_events_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    said = refusal(lambda: main([str(path)]), (SystemExit, StrobeError))
    assert said.startswith(f"{path} holds no trace events")
    assert "\n" not in said


USE = """<iframe id="page" src="{page}#operator=aten::mm" style="width:1200px;height:2000px;border:0"></iframe>
<pre id="said"></pre><script>page.onload = function () {{
  var inside = page.contentDocument, find = function (path) {{ return inside.querySelector(path); }};
  var shown = function () {{
    return [...inside.querySelectorAll("#operators tbody tr")].filter(function (row) {{ return !row.hidden; }})
      .map(function (row) {{ return row.cells[0].innerText.split("\\n")[0]; }});
  }};
  var press = function (key) {{
    (inside.activeElement || inside.body).dispatchEvent(
      new page.contentWindow.KeyboardEvent("keydown", {{ key: key, bubbles: true }}));
  }};
  var said = {{ target: find(":target") && find(":target").id }};
  find("#operators th:nth-child(4) button").click();
  said.sorted = find("#operators th[aria-sort]").getAttribute("aria-sort");
  press("/");
  said.focused = inside.activeElement.getAttribute("aria-label");
  find("#operators .search input").value = "aten mm";
  find("#operators .search input").dispatchEvent(new page.contentWindow.Event("input"));
  said.found = shown();
  find("#operators .search select").value = "range";
  find("#operators .search select").dispatchEvent(new page.contentWindow.Event("change"));
  said.ranges = shown();
  find(".plot-flame").focus();
  ["ArrowRight", "ArrowRight", "Enter"].forEach(press);
  said.flame = find(".flame output").textContent;
  said.zoomed = !find(".flame button").hidden;
  press("Escape");
  said.all = find(".flame button").hidden;
  said.graphs = [...find(".flame select").options].map(function (one) {{ return one.text; }});
  document.getElementById("said").textContent = JSON.stringify(said);
}}</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_can_be_used_in_a_browser(tmp_path: Path) -> None:
    ranks = [str(made(tmp_path / f"{rank}.json.gz", rank=rank, slower=200.0 * rank)) for rank in range(2)]
    out, outer = tmp_path / "page.html", tmp_path / "outer.html"
    main([*ranks, "--baseline", ranks[0], "--out", str(out), "--no-open"])
    phone = measured(out, 400)
    assert (phone["scroll"], phone["errors"], phone["requests"], phone["small"]) == (phone["wide"], 0, 0, 0)
    outer.write_text(USE.format(page=out.name))
    dom = chromium(tmp_path, "--dump-dom", outer.as_uri())
    found = re.search(r'<pre id="said">(.+?)</pre>', dom)
    assert found
    said: dict[str, Any] = json.loads(html.unescape(found[1]))
    focused, flame, graphs = (said.pop(name) for name in ("focused", "flame", "graphs"))
    known = {"target": "operator=aten::mm", "sorted": "descending", "found": ["aten::mm"], "ranges": []}
    assert said == known | {"zoomed": True, "all": True}
    assert focused.startswith("Search ")
    assert re.fullmatch(r"\w+: [\d.]+ ms, [\d.]+%", flame)
    assert (graphs[0], len(graphs)) == ("On the host", 5)
