"""A made-up machine on which the speed of each configuration is known."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.app.tuning.proposals import Move
from strobe.app.tuning.search import Outcome
from strobe.records.files import write_summary
from strobe.records.run import Record

Rate = Callable[[Mapping[str, str]], float]  # images/s, of overrides by key; 0: it runs out of memory
DEFAULTS = {"loader": "skimage", "data.batch_size": "32", "model.channels_last": "false"}


def settings(overrides: Sequence[str]) -> dict[str, str]:
    """Overrides by key, over the defaults."""
    return DEFAULTS | dict(override.partition("=")[::2] for override in overrides)


class Made:
    """Answers as a machine would, at once; ``offers`` are what findings prescribe, in turn, with what they promise."""

    def __init__(self, folder: Path, rate: Rate, offers: Sequence[tuple[str, float]]) -> None:
        self.folder, self.rate, self.offers = folder, rate, offers
        self.looks: list[list[str]] = []
        self.compared: list[tuple[list[str], list[str]]] = []
        self.now = 0.0
        self.breaks: int | None = None  # before this comparison Ctrl-C comes
        self.failure: str | None = None
        self.trainings = 0

    def clock(self) -> float:
        return self.now

    def look(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        self.now += 20
        self.trainings += 1
        self.looks.append(list(overrides))
        record = self.record(overrides)
        name = f"looks/{len(self.looks)}"
        (self.folder / name).mkdir(parents=True)
        write_summary(self.folder / name / "summary.json", record.summary)
        return record, name

    def record(self, overrides: Sequence[str]) -> Record:
        chosen = settings(overrides)
        summary: dict[str, Any] = {
            "schema": 1,
            "status": "completed",
            "choices": {"engine": "torch", "loader": chosen["loader"]},
            "overall_images_per_second": self.rate(chosen),
            "step_seconds": {"total": 0.1, "data_wait": 0.0},
            "batch_size": int(chosen["data.batch_size"]),
            "findings": [finding(override, promised) for override, promised in self.offers],
        }
        return Record(summary, {"data": {"batch_size": int(chosen["data.batch_size"])}})

    def compare(self, before: Sequence[str], after: Sequence[str], *, proof: bool = False) -> Outcome:
        self.now += 10
        self.trainings += 1
        if self.breaks == len(self.compared):
            raise KeyboardInterrupt
        self.compared.append((list(before), list(after)))
        rates = [self.rate(settings(overrides)) for overrides in (after, before)]
        if not rates[0]:
            return Outcome("out of memory", error="CUDA out of memory")
        ratio = rates[0] / rates[1]
        verdict = "faster" if ratio > 1.02 else "slower" if ratio < 0.98 else "no difference"
        return Outcome(verdict, {"median": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio})


class Silent:
    """Watches, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def looks(self, overrides: Sequence[str], left: float) -> None:
        self.told.append("look")

    def looked(self, record: Record | None) -> None:
        pass

    def tries(self, move: Move, left: float) -> None:
        self.told.append(" ".join(move.overrides))

    def tried(self, trial: Mapping[str, Any]) -> None:
        pass

    def proves(self, left: float) -> None:
        self.told.append("prove")


def finding(override: str, promised: float, cause: str = "cause") -> dict[str, Any]:
    """One that prescribes an override."""
    return {
        "cause": cause,
        "title": f"{override} is better",
        "evidence": "It was measured.",
        "advice": "Take it.",
        "overrides": [override],
        "predicted_speedup": {"median": promised, "low": 0.9 * promised, "high": 1.1 * promised},
    }
