"""Which training steps a profiler records."""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from torch.profiler import ProfilerAction

ACTIVE = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
WARM_UP, FEWEST = 3, 6  # steps that are not measured, and how many must be for an interval of 95%


@dataclass(frozen=True)
class Schedule:
    """`torch.profiler.schedule`'s arguments, in steps (https://docs.pytorch.org/docs/stable/profiler.html).

    Unlike that closure it can be pickled, can look ahead, and can record fewer than `active` steps.

    Raises:
        ValueError: `active` is less than 1, or another number is negative.
    """

    skip_first: int = 0  # before the first cycle
    skip_first_wait: int = 0  # any other value leaves out the first cycle's `wait`
    wait: int = 1  # at the start of a cycle, not profiled
    warmup: int = 1  # profiled and thrown away, as the first ones pay for starting the profiler
    active: int = 3  # recorded in each cycle
    repeat: int = 1  # cycles, or 0 to go on until training ends

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < (least := int(field.name == "active")):
                raise ValueError(f"{field.name}={value} is too small; it must be at least {least}")

    @property
    def length(self) -> int:
        """Steps of a cycle."""
        return self.wait + self.warmup + self.active

    def place(self, step: int) -> int | None:
        """A step's place in its cycle, from 0; None outside of all cycles."""
        if step < self.skip_first:
            return None
        step += (self.wait if self.skip_first_wait else 0) - self.skip_first
        return None if 0 < self.repeat * self.length <= step else step % self.length

    def action(self, step: int, active: int | None = None) -> ProfilerAction:
        """What torch.profiler does in a step, counted from 0; it records at most `active` steps per cycle."""
        place = self.place(step)
        if place is None or place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        recorded = place - self.wait - self.warmup + 1
        last = min(self.active, active or self.active)
        if recorded > last:
            return ProfilerAction.NONE
        return ProfilerAction.RECORD_AND_SAVE if recorded == last else ProfilerAction.RECORD

    def is_over(self, step: int) -> bool:
        """Whether all cycles are over at this step."""
        return self.repeat > 0 and step >= self.skip_first and self.place(step) is None

    def unprofiled(self, steps: int) -> int:
        """How many of these steps are left to measure; a profiler also disturbs the step before its first one."""
        idle = [self.action(step) is ProfilerAction.NONE for step in range(steps + 1)]
        return sum(idle[step] and idle[step + 1] for step in range(WARM_UP, steps))

    def shortened(self, steps: float, may: Collection[str]) -> "Schedule":
        """With a lower `active` or `repeat` (those in `may`), if that leaves more of so many steps to measure.

        Half of them are enough, but at least `FEWEST`. A schedule that lasts until training ends stays as it is.
        """
        if not self.repeat or steps >= 2 * (self.skip_first + self.repeat * self.length) + WARM_UP + FEWEST:
            return self
        total, wanted = math.floor(steps), max(FEWEST, steps / 2)
        actives, repeats = (
            range(value, 0, -1) if name in may else [value]
            for name, value in (("active", self.active), ("repeat", self.repeat))
        )
        options = [replace(self, active=active, repeat=repeat) for active in actives for repeat in repeats]
        return next((one for one in options if one.unprofiled(total) >= wanted), options[-1])

    def records_within(self, step: int, ahead: int) -> bool:
        """Whether a step, or one of the `ahead` steps after it, is recorded."""
        first, place = self.wait + self.warmup, self.place(step)
        if place is not None:
            return first - place <= ahead
        first -= self.wait if self.skip_first_wait else 0
        return step < self.skip_first and self.skip_first - step + first <= ahead

    def describe(self) -> str:
        """The schedule in one sentence."""
        first = f"skip {self.skip_first} steps, then " if self.skip_first else ""
        cycles = f"cycles: {self.repeat}" if self.repeat else "until training ends"
        without = ", the first without the wait" if self.skip_first_wait else ""
        return f"{first}wait {self.wait}, warm up {self.warmup}, record {self.active}; {cycles}{without}"
