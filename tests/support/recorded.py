"""Examples for the rules: one constructed for each cause, in the form of a run's record, and some of real runs."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from strobe.diagnose.predict import step_of
from strobe.diagnose.rank import all_rules, as_list, diagnose
from strobe.diagnose.rules import Finding
from strobe.records.run import Record

FOLDER = Path(__file__).parents[1] / "diagnose" / "constructed"
CAUSES = sorted(path.stem for path in FOLDER.glob("*.json"))
REAL = FOLDER.with_name("recorded")
RECORDED = sorted(path.stem for path in REAL.glob("*.json"))
CALLBACK = {"name": "Audit", "kind": "callback", "mean": 0.02, "longest": 0.05, "calls": 180}
BESIDE = {"own": 0.4, "others": 0.5, "stolen": 0.0, "idle": 0.1, "delayed": 0.3}


def recorded(name: str) -> tuple[Record, str]:
    """What a real run left, and which cause was injected into it; the file also has its command."""
    content = json.loads((REAL / f"{name}.json").read_text())
    return Record(content["summary"], content["config"]), content["injected"]


def example(cause: str, **changes: Any) -> Record:
    """The example, with values of existing keys changed: ``example("loader", summary__steps__measured=0)``."""
    content = _constructed(cause)
    for path, value in changes.items():
        node, name = _place(content, path.split("__"))
        assert name in node, f"{path} is not in the example"
        node[name] = value
    return Record(content["summary"], content["config"])


def _constructed(cause: str) -> dict[str, Any]:
    """An example that is like another: its file says what differs, by path, and which keys it lacks."""
    content: dict[str, Any] = json.loads((FOLDER / f"{cause}.json").read_text())
    if "like" not in content:
        return content
    made = _constructed(content["like"])
    for path, value in content["differs"].items():
        node, name = _place(made, path.split("."))
        node[name] = value
    for path in content.get("lacks", []):
        node, name = _place(made, path.split("."))
        del node[name]
    return made


def _place(content: dict[str, Any], path: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The group that holds a value, and its name there."""
    *groups, name = path
    for group in groups:
        content = content[group]
    return content, name


def of(cause: str, record: Record) -> list[Finding]:
    """What the rule of this name finds."""
    (rule,) = (rule for rule in all_rules() if rule.__name__ == cause)
    step = step_of(record)
    return [] if step is None else as_list(rule(record, step))


def damages(node: Any, values: tuple[Any, ...], turn: int = 0) -> Iterator[str]:
    """Damage one place after the other, at any depth, and mend it again: taken out, or one of these values, in turn."""
    yield from _damaged(node, values, count(turn))


def _damaged(node: Any, values: tuple[Any, ...], turns: Iterator[int]) -> Iterator[str]:
    for place in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []:
        kept, way = node[place], next(turns) % (1 + len(values))
        if way:
            node[place] = values[way - 1]
            yield f"{place} is {node[place]!r}"
            node[place] = kept
        else:
            node.pop(place)
            yield f"{place} taken out"
            node.update({place: kept}) if isinstance(node, dict) else node.insert(place, kept)
        yield from (f"{place}.{text}" for text in _damaged(kept, values, turns))


def causes(record: Record) -> list[str]:
    """Of a run's findings, in order."""
    return [finding.cause for finding in diagnose(record)]


def with_batches(record: Record, rate: float) -> Record:
    """The same run, with a measured batch of twice the size that computes so many images/s."""
    size = record.config["data"]["batch_size"] * 2
    entry = {"overrides": [f"data.batch_size={size}"], "side": "model", "cpu_seconds": 0.01, "images_per_step": size}
    record.summary["ceilings"]["alternatives"].append(entry | {"rate": rate, "interval": [rate * 0.98, rate * 1.02]})
    return record


def own_loop(summary: dict[str, Any], config: dict[str, Any]) -> None:
    """A script's own loop, in which nothing is measured beside training, and nothing tells when it copies."""
    summary.update(script="train.py", ceilings=None)
    summary["step_seconds"]["forward"] += summary["step_seconds"].pop("transfer")
    summary["device_seconds"].pop("transfer")
    config.clear()
    config.update(loop=True, unasked=True)
