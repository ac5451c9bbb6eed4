"""Suite ``convolution``: what is measured and what not, that only right results are, and what its page shows."""

import re
from pathlib import Path

import numpy as np
import pytest

from strobe.bench.harness.declare import Input, Request, Suite, Trial, slug
from strobe.bench.harness.trial import Report, measure
from strobe.bench.page import render
from strobe.bench.suites.convolution import cells
from strobe.bench.suites.convolution.implementations import IMPLEMENTATIONS, Implementation
from strobe.bench.suites.convolution.page import LESS, sections
from strobe.bench.suites.convolution.profiles import PAGE, load_profile
from strobe.bench.suites.convolution.reading import own_of_parts
from strobe.bench.suites.convolution.suite import (
    CALLS,
    EVENTS,
    LARGEST,
    LOOKING,
    PARTS,
    PLAIN,
    PROFILERS,
    REFERENCE,
    TIME,
    TO_CALLEE,
    profiled_cells,
)
from strobe.errors import DataError
from strobe.present.parts import Table
from support.composing import bench_config
from support.photo_files import photograph
from support.suite_parts import declared
from support.suite_records import record_of

NOISE = Input("noise", generated=True)
NOISE_FOUND = Input("noise, generated", generated=True)


def timed(suite: Suite) -> dict[str, list[int]]:
    """The sides at which each implementation is measured."""
    found: dict[str, list[int]] = {}
    for cell in suite.cells:
        if cell.table == TIME:
            found.setdefault(cell.column, []).append(int(cell.row))
    return found


def trial_in(folder: Path, given: Input = NOISE) -> Trial:
    folder.mkdir(parents=True, exist_ok=True)
    return Trial(folder, 0, (), given)


def test_every_implementation_is_measured_at_every_size_that_it_can_bear() -> None:
    assert list(LARGEST) == list(IMPLEMENTATIONS)
    quick, full = timed(declared("convolution", "quick=true")), timed(declared("convolution"))
    assert list(quick) == list(full) == list(IMPLEMENTATIONS)
    assert {tuple(sides) for sides in quick.values()} == {(8, 32, 64)}
    assert full[REFERENCE] == full["native"] == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert {name: sides[-1] for name, sides in full.items() if LARGEST[name]} == {
        name: largest for name, largest in LARGEST.items() if largest
    }
    assert timed(declared("convolution", "suite.kernel=6"))["im2col"][-1] == 64  # four times the products


def test_all_are_held_against_scipy_and_profilers_against_none() -> None:
    found = declared("convolution", "quick=true")
    known = {cell.name: cell for cell in found.cells}
    for cell in found.cells:
        if cell.column in {REFERENCE, PLAIN}:
            assert cell.against is None
        else:
            other = known[cell.against or ""]
            assert (other.table, other.row) == (cell.table, cell.row)
            assert other.column == (REFERENCE if cell.table == TIME else PLAIN)
        assert cell.threads == 1
    assert [cell.column for cell in found.cells if cell.table == PROFILERS] == [PLAIN, *LOOKING]
    assert {cell.row for cell in declared("convolution").cells if cell.table == PROFILERS} == {
        "im2col, 100 repetitions on 7x7"
    }


def test_what_is_chosen_is_measured() -> None:
    found = declared("convolution", "suite.implementations=[native,four loops]", "suite.sizes=[4,4000]")
    assert timed(found) == {"native": [4, 4000], "four loops": [4]}
    assert found.title == "One convolution, written in 2 ways"
    assert all(cell.against is None for cell in found.cells if cell.table == TIME)


def test_a_wrong_result_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = Implementation(lambda image, kernel: IMPLEMENTATIONS[REFERENCE].valid(image[::-1], kernel), "")
    monkeypatch.setitem(IMPLEMENTATIONS, "window sums", shifted)
    (cell,) = [cell for cell in declared("convolution", "suite.sizes=[8]").cells if cell.column == "window sums"]
    with (
        pytest.raises(
            DataError, match=r"window sums gives another result than scipy convolve2d for an image of \(8, 8"
        ),
        cell.make(trial_in(tmp_path)),
    ):
        pass


def test_a_photo_is_taken_where_a_folder_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROBE_DATA", str(tmp_path))  # whose photos are left alone
    folder = tmp_path / "photos"
    folder.mkdir()
    photograph(60, 90).save(folder / "a.jpg")
    find, cfg = declared("convolution").find, bench_config("suite=convolution", f"data.root={folder}")
    assert find(Request(cfg, "image_folder", ()), tmp_path / "none") == NOISE_FOUND
    found = find(Request(cfg, "image_folder", (f"data.root={folder}",)), tmp_path / "scratch")
    assert (found.told, found.generated) == ("the middle of a.jpg, in grey", False)
    image = cells.grey_image(found.facts["photo"], 16)
    assert (image.shape, image.dtype) == ((16, 16), np.float32)
    assert 0 <= image.min() < image.max() <= 1
    assert not (tmp_path / "scratch").exists()  # no links to it
    with cells.convolve(trial_in(tmp_path / "cell", found), name=REFERENCE, side=16, kernel=3) as work:
        assert work.repeat() == 1
    (folder / "a.jpg").write_bytes(b"no photo")
    with pytest.raises(DataError, match=r"a\.jpg cannot be read as a photo .*; remove it, or leave data\.root out"):
        find(Request(cfg, "image_folder", (f"data.root={folder}",)), tmp_path / "again")
    (folder / "a.jpg").unlink()
    with pytest.raises(DataError, match=r"data\.root=.*photos holds no JPEG photo"):
        find(Request(cfg, "image_folder", (f"data.root={folder}",)), tmp_path / "again")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Report]]:
    """A result's folder, in which each profiler's cell measured once, and what they found."""
    folder, found = tmp_path_factory.mktemp("result"), {}
    for cell in profiled_cells(20):
        with cell.make(trial_in(folder / "cells" / slug(cell.name))) as work:
            found[cell.column] = measure(cell, work, 0.0)
    return folder, found


def test_profilers_tell_where_the_same_work_spends_its_time(profiled: tuple[Path, dict[str, Report]]) -> None:
    folder, found = profiled
    assert list(found) == [PLAIN, *LOOKING]
    for cell in profiled_cells(20):
        report, place = found[cell.column], folder / "cells" / slug(cell.name)
        assert report.images == [20]
        own = {part: report.figures[part] for part in PARTS}
        assert min(own.values()) >= 0
        assert sum(own.values()) > 0
        profile = load_profile(place)
        assert (profile is None) == (cell.column == PLAIN)
        if profile:
            assert own_of_parts(profile.own) == pytest.approx(own)
            assert f"20 convolutions by im2col, seen by {cell.column}" in (place / PAGE).read_text(encoding="utf-8")
    assert found[EVENTS].figures[CALLS] > 20 * 882 * 2  # _get_indices, and what it calls in C
    assert found[EVENTS].figures[TO_CALLEE] > 0


def test_the_page_shows_growth_profiles_and_how_far_they_disagree(profiled: tuple[Path, dict[str, Report]]) -> None:
    folder, found = profiled
    suite = declared("convolution", "quick=true")
    record = record_of(
        suite,
        {
            cell.name: [found[cell.column] if cell.table == PROFILERS else Report([1e-6 * int(cell.row) ** 2], [1.0])]
            for cell in suite.cells
            if cell.table == PROFILERS or cell.column in {"four loops", REFERENCE}
        },
    )
    asked, growth, events, samples, apart = found_sections = sections(record, folder)
    assert repr(asked.parts).count("Heading(") == 5
    assert growth.text.splitlines()[0] == "four loops: n^2.00 (2.00 to 2.00) for n = 8 to 64; n^2.00 for n = 32 to 64"
    assert "n²: k² products a pixel, each in Python" in repr(growth.parts)
    for section, names in ((events, LOOKING[:2]), (samples, LOOKING[2:])):
        shown = repr(section.parts)
        links = re.findall(r"link='\./(cells/[^']*)'", shown)
        assert len(links) == shown.count("Pre(") == 2
        assert all((folder / link).is_file() for link in links)
        assert all(f"Heading(text='{name}'" in shown for name in names)
        assert "(_get_indices)" in shown
    assert "17,640" in repr(events.parts)
    (rows,) = (part.rows for part in apart.parts if isinstance(part, Table))
    assert [sum(str(cell).endswith("%") for cell in row) for row in rows] == [6] * len(PARTS) + [5, 0]
    assert LESS in repr(apart.parts)
    page = render(suite, record, found_sections)
    assert all(section.title.replace("'", "&#39;") in page for section in found_sections)
    none = sections(record_of(suite, {cell.name: "it broke" for cell in suite.cells}), folder)
    assert [section.title for section in none] == [asked.title]
