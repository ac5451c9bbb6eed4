"""A made-up machine on which the speed of each configuration is known."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.app.tuning.record import Outcome
from strobe.records.files import write_summary
from strobe.records.run import Record

Rate = Callable[[Mapping[str, str]], float]  # images/s, of overrides by key; 0: it runs out of memory
DEFAULTS = {"loader": "skimage", "data.batch_size": "32", "model.channels_last": "false"}


def settings(overrides: Sequence[str]) -> dict[str, str]:
    """Overrides by key, over the defaults."""
    return DEFAULTS | dict(override.partition("=")[::2] for override in overrides)


class Made:
    """Answers as a machine would, at once; ``offers`` are what findings prescribe, in turn, with their estimates."""

    def __init__(self, folder: Path, rate: Rate, offers: Sequence[tuple[str, float]]) -> None:
        self.folder, self.rate, self.offers = folder, rate, offers
        self.probes: list[list[str]] = []
        self.compared: list[tuple[list[str], list[str]]] = []
        self.now = 0.0
        self.breaks: int | None = None  # before this comparison Ctrl-C comes
        self.failure: str | None = None
        self.trainings = 0

    def clock(self) -> float:
        return self.now

    def probe(self, overrides: Sequence[str]) -> tuple[Record | None, str]:
        self.now += 20
        self.trainings += 1
        self.probes.append(list(overrides))
        record = self.record(overrides)
        name = f"looks/{len(self.probes)}"
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
            "findings": [finding(override, estimate) for override, estimate in self.offers],
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


def finding(override: str, estimate: float, cause: str = "cause") -> dict[str, Any]:
    """One that prescribes an override."""
    return {
        "cause": cause,
        "title": f"{override} is better",
        "evidence": "It was measured.",
        "advice": "Take it.",
        "overrides": [override],
        "predicted_speedup": {"median": estimate, "low": 0.9 * estimate, "high": 1.1 * estimate},
    }
