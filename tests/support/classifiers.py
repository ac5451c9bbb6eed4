"""Classifiers of the ground-truth grid: what each is made of, and one with several habits at once."""

from typing import Any

from strobe.validation.injected_mistakes import ImageLossesClassifier, StatisticsClassifier, ViewsClassifier

OPTIONS: dict[str, Any] = {
    "classes": ("meadow", "forest", "river"),
    "channels": 4,
    "batch_size": 8,
    "stem": "imagenet",
    "weights": None,
    "channels_last": False,
    "compile": False,
    "label_smoothing": 0.0,
    "optimizer": "adam",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "fused": None,
    "momentum": 0.9,
    "scheduler": "none",
    "lr_scaling": "none",
    "lr_batch_size": 32,
}


class AllHabits(StatisticsClassifier, ImageLossesClassifier, ViewsClassifier):
    """One with each habit that needs a trainer, for a test that trains once."""
