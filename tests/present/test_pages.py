"""What holds of every page: the run's report, comparisons and suites alike."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.console import Console

from strobe.bench import page as suite_page
from strobe.compare import page as comparison_page
from strobe.present.page import exact, shown, write_whole
from strobe.present.terminal import ProgressDisplay
from strobe.records.run import Record
from strobe.report import page as report_page
from strobe.tune.page import write_page
from strobe.tune.record import begin
from strobe.tune.search import Search
from support import comparisons, suite_records
from support.browser import CHROMIUM, DARK, brightness, measured
from support.files import names
from support.interruptions import full_disk
from support.landscape import Made
from support.pages import FILES, SLOWEST, Page, complete, spoilt, steps

PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: report_page.render(Record(complete()), steps(500, range(50, 60)), SLOWEST, files=FILES),
    "report without steps": lambda: report_page.render(Record(complete())),
    "failed report": lambda: report_page.render(Record(complete() | FAILED)),
    "report of a busy machine": lambda: report_page.render(Record(complete() | BUSY)),
    "search": lambda: searched(),  # noqa: PLW0108  # which is defined below
    "comparison of 2": lambda: comparison_page.render(comparisons.comparison(2)),
    "comparison of 24": lambda: comparison_page.render(comparisons.comparison(24)),
    "comparison of 200": lambda: comparison_page.render(comparisons.comparison(200)),
    "suite with bars": lambda: suite_page.render(*suite_records.loading()),
    "suite with lines": lambda: suite_page.render(*suite_records.workers()),
    "hostile report": spoilt,
    "hostile comparison": lambda: comparison_page.render(comparisons.hostile(24)),
    "hostile suite": lambda: suite_page.render(*suite_records.hostile()),
}
FAILED = {
    "status": "failed",
    "error": {"type": "DataError", "message": "tile.tif cannot be read; replace it, or remove it"},
    "verdict": "The run failed; until then: 61% of each step waits for data.",
}
BUSY = {"machine": {"others": 0.4, "stolen": 0.0, "delayed": 0.3, "busiest": [{"name": "stress", "cores": 1.5}]}}
READ = {  # what a reader must see of a page, however wide it is
    "report": "61% of each step waits for data|loader=memory",
    "failed report": "DataError: tile.tif cannot be read; replace it|Until then: 61% of each step waits for data.",
    "search": "loader=native|python train.py data=eurosat loader=native",
    "report of a busy machine": "Noisy: other processes (stress 1.5 cores) kept training from its cores",
    "comparison of 2": "native is the fastest",
    "comparison of 24": "three other settings may be as fast",
    "comparison of 200": "All cells",
    "suite with bars": "The native loader is 6.2 times as fast as skimage",
}
PAPER, SHRUNK = 718, 1.5  # pixels of A4 between usual margins; browsers shrink what is wider by so much
FETCHING = {"link", "img", "iframe", "object", "embed", "base", "form"}


def searched() -> str:
    """The page of a search that has found the native loader."""
    with TemporaryDirectory() as folder:
        tuning = begin(Path(folder), ["data=eurosat"], None, command="strobe tune data=eurosat", budget=600.0)
        rates = {"native": 300.0, "skimage": 100.0}
        machine = Made(Path(folder), lambda chosen: rates[chosen["loader"]], [("loader=native", 2.5)])
        Search(tuning, machine, ProgressDisplay(Console(quiet=True)), clock=machine.clock).run()
        return write_page(tuning).read_text(encoding="utf-8")


@cache
def page(name: str) -> Page:
    return Page(PAGES[name]())


every = pytest.mark.parametrize("name", PAGES)


@every
def test_nothing_is_fetched_and_only_its_own_scripts_run(name: str) -> None:
    found = page(name)
    (policy,) = (meta.get("content", "") for meta in found.tree.iter("meta") if meta.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    runs = [script for script in found.tree.iter("script") if script.get("type") != "application/json"]
    assert policy.count("'sha256-") == len(runs)
    assert not FETCHING & {element.tag for element in found.tree.iter()}
    assert not re.search(r"@import|url\(", found.source)
    attributes = {name for element in found.tree.iter() for name in element.attrib}
    assert not [name for name in attributes if name.startswith("on") or name == "src"]
    assert all((link or "").startswith("./") for link in found.links)


@pytest.mark.parametrize(("name", "least"), [("hostile report", 30), ("hostile comparison", 40), ("hostile suite", 20)])
def test_markup_in_a_record_is_text_on_its_page(name: str, least: int) -> None:
    assert len(list(page(name).tree.iter("script"))) == 1
    assert page(name).text.count("alert(1)") >= least
    assert "\x00" not in page(name).source
    assert page(name).source.encode()


@every
def test_drawings_have_words_for_those_who_cannot_see(name: str) -> None:
    def seen(element: ET.Element, *, said: bool) -> None:
        said = said or bool(element.get("aria-label")) or element.get("aria-hidden") == "true"
        assert said or element.tag != "svg"
        for child in element:
            seen(child, said=said)

    seen(page(name).tree, said=False)
    assert page(name).tree.get("lang") == "en"


@every
def test_sections_have_names_of_their_own(name: str) -> None:
    sections = page(name).sections
    assert len(sections) == len(set(sections)) > 0


def test_texts_are_escaped_cut_and_kept_with_their_units() -> None:
    assert shown('<b a="1">') == "&lt;b a=&#34;1&#34;&gt;"
    assert shown("x" * 500) == "x" * 399 + "…"
    assert shown("x" * 500, 600) == "x" * 500
    assert shown("a\x00\ud800") == "a\ufffd\ufffd"
    assert shown("in 12.5 ms, 3 GB and 2 seconds") == "in 12.5\u00a0ms, 3\u00a0GB and 2 seconds"
    assert exact("train.py a=1 s=2") == "train.py a=1 s=2"  # to be copied


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "page.html", "first \ud800")
    before = path.read_bytes()
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        write_whole(path, "x" * 10_000)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["page.html"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("name", [*READ, "hostile report", "hostile comparison"])
def test_a_page_fits_a_browser_of_any_width(name: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(name).source, encoding="utf-8")
    for width, printed in ((360, False), (400, False), (1200, False), (PAPER, True)):
        if printed and name not in READ:  # words of 300 letters
            continue
        seen = measured(path, width, printed=printed)
        assert [part for part in READ.get(name, "").split("|") if part not in " ".join(seen["text"].split())] == []
        assert not (printed and seen["cut"])  # nobody can scroll on paper
        assert seen["wide"] == width >= seen["scroll"] / (SHRUNK if printed else 1.0)
        assert seen["requests"] == 0
        assert printed or seen["small"] == 0
        assert seen["buttons"] == 0  # the page's own script ran, so all of them are shown
    light, dark = brightness(path), brightness(path, DARK)
    assert light[5, 5] > 245
    assert dark[5, 5] < 40
    assert min(light.std(), dark.std()) > 10  # and something is drawn on it
