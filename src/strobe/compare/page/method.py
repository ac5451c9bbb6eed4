"""The end of the page: how the figures came about, on which machine, and the files beside it."""

from collections import Counter

from strobe.compare.page.cells import Comparison
from strobe.compare.page.words import link
from strobe.report.html.pieces import command, facts, section
from strobe.report.html.text import counted, duration, esc, percent, size

FILES = {"comparison.json": "the whole comparison", "comparison.csv": "a line for each cell"}
_SHORT = 12  # digits of a commit
_RATE = (
    "Images/s of a run is all images of its counted steps over the time of these steps and of what lies between them; "
    "the first steps, which warm up, and steps that a profiler disturbed are left out."
)
_RUNS = (
    "A cell's figure is over its runs, the geometric mean; its interval, 95%, is by a bootstrap over runs of the "
    "logarithms of their rates, widened where there are few. Steps of one run resemble each other more than two runs "
    "do, so an interval over steps, which is all that a single run has, is too narrow to compare with."
)
_VERDICT = (
    "Faster or slower is what has an interval of its speed-up that does not hold 1: "
    "97%, so that a cell compared with one like it is told apart from it 5 times in 100 at most. That is of one "
    "comparison: of 20 cells that are all alike, one may well be called faster or slower. With one run on either side "
    "there is no verdict."
)
_CACHE = (
    "Files that were read before may come from the page cache and not from the disk: a run that finds them there is "
    "faster. Where runs differ in that, the top of this page says so."
)


def method(compared: Comparison) -> str:
    """The section; there always is one."""
    counts = Counter(len(cell.runs) for cell in compared.cells if cell.runs)
    lines = [_RATE, _RUNS, _VERDICT, _CACHE]
    if counts:
        told = ", ".join(
            f"{counted(cells, 'cell')} of {counted(runs, 'run')}" for runs, cells in sorted(counts.items())
        )
        spent = sum(run.number("seconds") or 0.0 for cell in compared.cells for run in cell.runs)
        lines.append(f"Here: {told}{f', in {duration(spent)} of training' if spent else ''}.")
    body = "".join(f"<p>{line}</p>" for line in lines) + facts(_machine(compared))
    if text := compared.record.text("command"):
        body += f"<div><h3>Compare again</h3>{command(text)}</div>"
    files = "".join(f"<li>{link(name, name)}<small>{words}</small></li>" for name, words in FILES.items())
    body += f'<div><h3>The figures, to be read by programs</h3><ul class="figures-files">{files}</ul></div>'
    return section("method", "How it was measured", "And the files beside this page.", body)


def _machine(compared: Comparison) -> list[tuple[str, str]]:
    """Of the runs' environment, what the record tells."""
    found = compared.record.mapping("environment")
    names = (("host", "Host"), ("cpu", "Processor"), ("usable_cores", "Usable cores"))
    pairs = [(words, esc(found[key])) for key, words in names if found.get(key) is not None]
    if whole := compared.record.number("environment", "memory_bytes"):
        pairs.append(("Memory", size(whole)))
    gpus = dict.fromkeys(text for cell in compared.cells if (text := cell.record.text("gpu")))
    pairs += [("GPU", esc(name)) for name in gpus] or ([("GPU", "none")] if pairs else [])
    if commit := compared.record.text("environment", "git_commit"):
        pairs.append(("Commit", f"<code>{esc(commit[:_SHORT] + '+' * commit.endswith('+'))}</code>"))
    if (share := compared.record.number("environment", "page_cache")) is not None:
        pairs.append(("In the page cache when training began", percent(share)))
    versions = compared.record.mapping("environment", "versions")
    return pairs + [(esc(name), esc(value)) for name, value in versions.items() if value]
