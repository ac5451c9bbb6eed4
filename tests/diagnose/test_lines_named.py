"""A finding names the line in which its time goes."""

from typing import Any

import pytest

from strobe.diagnose.lines import with_line
from strobe.diagnose.rank import diagnose
from strobe.diagnose.rules import Finding
from strobe.records.run import Figure, Record
from support.recorded import example


def line(
    phase: str, number: int, share: float, function: str = "ask", file: str = "/home/me/train.py"
) -> dict[str, Any]:
    return {"phase": phase, "file": "/mine/train.py", "line": number, "function": function, "share": share}


@pytest.mark.parametrize(
    ("cause", "subject", "lines", "told"),
    [
        ("stalled", "forward", [line("forward", 31, 0.9)], "90% of the forward pass is spent in ask, at train.py:31."),
        ("loader", "", [line("data_wait", 7, 0.5)], "50% of the wait is spent in ask, at train.py:7."),
        ("between", "", [line("between", 7, 0.5)], "50% of that time is spent in ask, at train.py:7."),
        ("between", "Audit", [line("between", 7, 0.5)], ""),
        ("callback", "Audit", [line("callbacks/Audit", 8, 1.0)], "100% of Audit is spent in ask, at train.py:8."),
        (
            "single_thread",
            "forward",
            [line("forward", number, 0.2) for number in (5, 6, 7)],
            "60% of the forward pass is spent in ask, most often at train.py:7. "
            "Without ask, training would be up to 1.22x as fast.",
        ),
        (
            *("single_thread", "forward"),  # the loop's own function, of which the network may be a part
            [line("forward", 5, 0.6), line("backward", 6, 1.0)],
            "60% of the forward pass is spent in ask, at train.py:5.",
        ),
        (
            *("single_thread", "forward"),
            [line("forward", 5, 0.6, "Net.forward")],
            "60% of the forward pass is spent in Net.forward, at train.py:5.",
        ),
        (
            *("small_operations", ""),  # either may make them
            [line("forward", 5, 0.5, "Net.forward"), *(line("forward", number, 0.2) for number in (7, 8))],
            "50% of the forward pass is spent in Net.forward, at train.py:5, and 40% in ask, at train.py:8.",
        ),
        ("stalled", "forward", [line("forward", 31, 0.2)], ""),  # mostly elsewhere
        ("stalled", "forward", [line("backward", 31, 0.9)], ""),
        (
            *("nothing", ""),
            [line("forward", 3, 0.6, "filters"), line("forward", 8, 0.2, "table")],
            "60% of the forward pass is spent in filters, at train.py:3, and 20% in table, at train.py:8. "
            "Without both, training would be up to 1.31x as fast.",
        ),
        (
            *("nothing", ""),
            [line("forward", 3, 0.8, "Net.forward"), line("backward", 6, 1.0) | {"library": "torch.autograd"}],
            "80% of the forward pass is spent in Net.forward, at train.py:3.",
        ),
        ("nothing", "", [line("backward", 9, 1.0), line("optimizer", 10, 1.0)], ""),  # the loop's own, which calls them
        (
            *("nothing", ""),
            [line("backward", 9, 1.0, "slow")],
            "100% of the backward pass is spent in slow, at train.py:9. "
            "Without slow, training would be up to 1.43x as fast.",
        ),
        (
            *("nothing", ""),  # what is longer shows none
            [line("data_wait", 3, 0.8), line("prepare", 4, 0.8), line("forward", 5, 0.2), line("backward", 5, 0.2)],
            "80% of scaling and augmenting is spent in ask, at train.py:4.",
        ),
        (
            *("garbage_collection", ""),
            [line("garbage_collection", 9, 1.0)],
            "100% of collecting is spent in ask, at train.py:9.",
        ),
        (
            *("library_call", "copy"),  # whose line is told, not the longest one
            [line("forward", 3, 0.8), line("forward", 9, 0.15) | {"library": "copy"}],
            "15% of the forward pass is spent in ask, at train.py:9.",
        ),
        (
            *("library_call", "scipy"),  # arithmetic on its arrays is its own, where nothing else is computed
            [line("forward", 3, 0.3) | {"library": "scipy"}, line("forward", 4, 0.25), line("forward", 9, 0.4, "rest")],
            "55% of the forward pass is spent in ask, at train.py:3.",
        ),
        (
            *("library_call", "json"),  # in the phase in which it takes longest
            [line("forward", 3, 0.1) | {"library": "json"}, line("other", 9, 0.9, "save") | {"library": "json"}],
            "90% of code outside all phases is spent in save, at train.py:9.",
        ),
        (
            *("recomputing", ""),
            [
                line("backward", 3, 0.8),
                line("backward", 9, 0.2, "forward") | {"library": "torch.utils.checkpoint"},
                {
                    "phase": "backward",
                    "file": None,
                    "library": "torch.utils.checkpoint",
                    "share": 0.3,
                },  # of a library's
            ],
            "20% of the backward pass is spent in forward, at train.py:9.",
        ),
        (
            *("python_code", "backward"),  # the line that keeps Python's lock
            [line("backward", 3, 0.8) | {"python": 0.05}, line("backward", 9, 0.2, "hook") | {"python": 0.2}],
            "20% of the backward pass is spent in hook, at train.py:9.",
        ),
        ("memory_layout", "", [line("forward", 3, 0.8)], ""),
        (
            *("transfer", ""),  # what a hook does with a batch
            [line("prepare", 4, 0.6, "filters")],
            "60% of scaling and augmenting is spent in filters, at train.py:4.",
        ),
        (
            *("background_thread", ""),
            [line("forward", 3, 0.8), line("thread/sender", 9, 1.0, "send")],
            "100% of sender is spent in send, at train.py:9.",
        ),
        ("loader", "", "damaged", ""),
        ("loader", "", [None, {"phase": "data_wait", "share": "x"}], ""),
    ],
)
def test_the_function_with_most_of_the_phase_is_named(cause: str, subject: str, lines: Any, told: str) -> None:
    seconds = {"forward": 0.02, "prepare": 0.016, "other": 0.01, "data_wait": 0.001, "backward": 0.02, "total": 0.067}
    machine = {"threads": [{"name": "sender", "cores": 0.7}, {"name": "other", "cores": 0.1}]}
    record = Record({"lines": lines, "step_seconds": seconds, "machine": machine, "accelerator": "cpu"})
    finding = with_line(Finding(cause, "", "Before.", "", Figure(1, 1, 1), subject=subject), record)
    assert finding.evidence == f"Before. {told}".strip()


def test_a_script_s_phases_are_called_as_it_knows_them() -> None:
    summary = {"script": "python train.py", "lines": [line("prepare", 4, 0.6)]}
    finding = with_line(Finding("transfer", "", "Before.", "", Figure(1, 1, 1)), Record(summary))
    assert finding.evidence == "Before. 60% of preparing batches (transfer hooks) is spent in ask, at train.py:4."


@pytest.mark.parametrize("number", [7, None])
def test_a_script_s_own_line_that_loads_may_do_less(number: int | None) -> None:
    record = Record({"script": "python train.py", "lines": [line("data_wait", 7, 0.9)] if number else []})
    finding = with_line(Finding("loader", "", "Before.", "Load with 2 workers.", Figure(1, 1, 1)), record)
    assert finding.advice.startswith("Load with 2 workers.")
    assert ("Or let that line do less" in finding.advice) == (number is not None)


def test_a_line_s_text_is_told_up_to_a_length() -> None:
    told = [with_code("text = re.sub(pattern, full, text)"), with_code("found = " + " + ".join(["value"] * 40))]
    assert told[0] == "90% of the wait is spent in ask, at train.py:7 (`text = re.sub(pattern, full, text)`)."
    assert told[1].startswith("90% of the wait is spent in ask, at train.py:7 (`found = value + value")
    assert told[1].endswith("...`).")
    assert len(told[1]) < len(told[0]) + 60
    assert "(`loss=compute(aaaaaaa" in with_code(f"loss=compute({'a' * 90})")


def with_code(text: str) -> str:
    record = Record({"lines": [line("data_wait", 7, 0.9) | {"code": text}]})
    return with_line(Finding("loader", "", "", "", Figure(1, 1, 1)), record).evidence.strip()


def test_what_workers_load_is_named_by_what_it_took_without_them() -> None:
    summary = {"lines": [], "ceilings": {"loading": {"lines": [line("data_wait", 12, 0.95, "tokens")]}}}
    finding = with_line(Finding("loader", "", "Before.", "", Figure(1, 1, 1)), Record(summary))
    assert finding.evidence == "Before. 95% of the wait is spent in tokens, at train.py:12."


def test_beside_other_processes_alone_the_longest_phase_is_named() -> None:
    record = example("shared_machine")
    record.summary["lines"] = [line("backward", 4, 0.9)]
    assert "90% of the backward pass is spent in ask, at train.py:4." in diagnose(record)[0].evidence


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            [line("forward", 3, 0.04, "marks") | {"library": "numpy"}, line("forward", 4, 0.035, "marks")],
            "library_call",
        ),
        ([line("forward", 3, 0.04, "marks") | {"library": "numpy"}, line("forward", 4, 0.045, "marks")], "nothing"),
        (
            [line("forward", 3, 0.04, "Net.forward") | {"library": "numpy"}, line("forward", 4, 0.035, "Net.forward")],
            "nothing",
        ),
        (
            [
                line("forward", 3, 0.04, "main") | {"library": "numpy"},
                line("forward", 4, 0.035, "main"),
                line("backward", 5, 1.0, "main"),
            ],
            "nothing",
        ),
    ],
)
def test_a_function_that_mostly_calls_a_library_is_there_for_it(lines: list[dict[str, Any]], cause: str) -> None:
    """Its seconds count as the library's; not those of a network, or of a loop, which compute with torch."""
    record = example("nothing")
    seconds = record.summary["step_seconds"]
    seconds["forward"], seconds["total"] = 10 * seconds["total"], 10 * seconds["total"]
    record.summary["lines"] = lines
    assert diagnose(record)[0].cause == cause
