"""A made-up machine on which the speed of each configuration is known."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strobe.overrides import applied
from strobe.records.files import write_summary
from strobe.records.run import Record
from strobe.tune.record import Outcome

Rate = Callable[[Mapping[str, str]], float]  # images/s, of overrides by key; 0: it runs out of memory
DEFAULTS = {
    "loader": "skimage",
    "data.batch_size": "32",
    "model.channels_last": "false",
    "trainer.precision": "32-true",
}


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
        (self.folder / name / ".hydra").mkdir()
        (self.folder / name / ".hydra" / "config.yaml").write_text(json.dumps(record.config))
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

    def alone(self, overrides: Sequence[str], side: str, changes: Sequence[str]) -> dict[str, Any] | None:
        return None

    def compare(self, before: Sequence[str], after: Sequence[str], *, among: int = 1, proof: bool = False) -> Outcome:
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


class Sided(Made):
    """Loads and computes in turn, at known speeds of either side (images/s, by settings); findings say nothing."""

    def __init__(
        self,
        folder: Path,
        loader: Rate,
        model: Rate,
        *,
        callback: float = 0.0,
        loaders: Sequence[str] = ("native", "skimage"),
    ) -> None:
        super().__init__(folder, self.trains, ())
        self.loaders = list(loaders)
        self.loader, self.model, self.callback = loader, model, callback
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def trains(self, chosen: Mapping[str, str]) -> float:
        """Images/s of training; 0 where a model runs out of memory."""
        computing = self.model(chosen)
        paid = self.callback / int(chosen["data.batch_size"])
        return 1 / (1 / self.loader(chosen) + 1 / computing + paid) if computing else 0.0

    def alone(self, overrides: Sequence[str], side: str, changes: Sequence[str]) -> dict[str, Any] | None:
        if self.breaks is not None and len(self.asked) == -self.breaks:
            raise KeyboardInterrupt
        self.now += 1
        self.asked.append((side, tuple(changes)))
        chosen = settings(applied(overrides, changes))
        rate = (self.loader if side == "loader" else self.model)(chosen)
        found = {
            "rate": rate,
            "interval": [0.98 * rate, 1.02 * rate],
            "images_per_step": int(chosen["data.batch_size"]),
        }
        return found | {"side": side, "cpu_seconds": 2 / rate} if rate else None

    def record(self, overrides: Sequence[str]) -> Record:
        chosen = settings(overrides)
        size, workers = int(chosen["data.batch_size"]), 0
        sides = {"loader": self.loader(chosen), "model": self.model(chosen)}
        total = size / self.trains(chosen)
        summary = super().record(overrides).summary | {
            "step_seconds": {"total": total, "data_wait": size / sides["loader"], "callbacks": self.callback},
            "images_per_second": {key: self.trains(chosen) for key in ("median", "low", "high")},
            "callbacks": [{"name": "Slow", "kind": "callback", "mean": self.callback, "longest": 1.0, "calls": 10}],
            "accelerator": "cpu",
            "num_workers": workers,
            "threads": 2,
            "train_images": 10_000,
            "loaders": self.loaders,
            "environment": {"usable_cores": 2, "cpu_bfloat16": True},
            "ceilings": {
                **sides,
                "intervals": {side: [0.98 * rate, 1.02 * rate] for side, rate in sides.items()},
                "cpu_seconds": {"loader": 1 / sides["loader"], "model": 2 / sides["model"]},
                "shared_cores": True,
                "alternatives": [],
            },
        }
        config = {
            "data": {"batch_size": size},
            "trainer": {"precision": chosen["trainer.precision"], "accumulate_grad_batches": 1},
            "model": {
                "channels_last": chosen["model.channels_last"] == "true",
                "lr_scaling": "none",
                "lr_batch_size": 1,
            },
        }
        return Record(summary, config)


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
