"""The schema of ``suite``: what ``python -m strobe.bench`` measures. A list of null: as many as the mode measures."""

from dataclasses import dataclass


@dataclass
class SuiteConfig:
    """A benchmark suite."""


@dataclass
class LoadingSuiteConfig(SuiteConfig):
    """Loaders, batch sizes, threads."""

    loaders: list[str] | None = None  # such as [skimage,"skimage loader.scale=torch"]; null: all that fit the data
    batch_sizes: list[int] | None = None
    threads: list[int] | None = None  # of torch, and of loader=native and packed
    batches: int | None = None  # that one repetition loads
    cold_batch_size: int | None = 32  # also measured with files that are not in the page cache; null: none
