"""A callback that watches a metric which nobody logs: Lightning's error as one sentence."""

import re
from typing import Any

from omegaconf import OmegaConf

from strobe.errors import ConfigError

MISSING = (  # the words of Lightning's EarlyStopping and ModelCheckpoint
    re.compile(r"Early stopping conditioned on metric `(.+?)` which is not available.*the following: (.*)", re.DOTALL),
    re.compile(r"`ModelCheckpoint\(monitor='(.+?)'\)` could not find the monitored key in .*?: \[(.*?)\]", re.DOTALL),
)
COUNTERS = {"epoch", "step"}  # which ModelCheckpoint lists among the metrics


def missing_metric(error: Exception, cfg: Any) -> ConfigError | None:
    """The mistake behind an error of Lightning's; None if the error is about something else."""
    found = next(filter(None, (words.search(str(error)) for words in MISSING)), None)
    if found is None:
        return None
    metric, logged = found[1], set(re.findall("[`'](.+?)[`']", found[2])) - COUNTERS
    watching = {key: OmegaConf.select(cfg, f"callbacks.{key}.monitor") for key in cfg.callbacks} if cfg else {}
    key = next((f"callbacks.{name}.monitor" for name, watched in watching.items() if watched == metric), "monitor")
    there = f"choose one of {', '.join(sorted(logged))}" if logged else "no metric was logged before it was needed"
    return ConfigError(f"{key}={metric} is not a metric of this run; {there}")
