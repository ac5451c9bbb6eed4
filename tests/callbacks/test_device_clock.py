"""The clock of a GPU's phases, on a device that is simulated: a queue of work, and a host that runs ahead of it."""

from typing import Any

import pytest
import torch

from strobe.callbacks import device_clock
from strobe.callbacks.device_clock import DEVICE_PHASES, DeviceClock


class Device:
    """Does what is submitted, one after the other. Times are seconds, of one clock for host and device."""

    def __init__(self) -> None:
        self.now = 0.0  # the host's time
        self.end = 0.0  # when the device has done all that was submitted
        self.made = 0
        self.recorded = 0
        self.waited = 0

    def submit(self, seconds: float) -> None:
        self.end = max(self.end, self.now) + seconds

    def host(self, seconds: float) -> None:
        self.now += seconds

    def event(self) -> "Event":
        self.made += 1
        return Event(self)


class Event:
    """As torch.cuda.Event."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.at: float | None = None

    def record(self, stream: str | None = None) -> None:
        self.device.recorded += 1
        self.stream = stream
        self.at = max(self.device.end, self.device.now)

    def query(self) -> bool:
        assert self.at is not None
        return self.at <= self.device.now

    def synchronize(self) -> None:
        assert self.at is not None
        self.device.waited += self.at > self.device.now
        self.device.now = max(self.device.now, self.at)

    def elapsed_time(self, later: "Event") -> float:
        assert self.query()
        assert later.query()
        assert self.at is not None
        assert later.at is not None
        return 1000 * (later.at - self.at)


class Accelerator:
    """As torch.cuda: it has streams, and captures graphs."""

    def __init__(self, device: Device) -> None:
        self.device, self.stream, self.captures = device, "default", False
        self.events: list[Event] = []

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802
        assert enable_timing
        self.events.append(self.device.event())
        return self.events[-1]

    def current_stream(self, _: torch.device | None) -> str:
        return self.stream

    def is_current_stream_capturing(self) -> bool:
        return self.captures


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def clock(device: Device) -> DeviceClock:
    return DeviceClock(device.event)


WORK = {"transfer": 1.0, "forward": 2.0, "backward": 4.0, "optimizer": 0.5}


def step(clock: DeviceClock, device: Device, scale: float = 1.0, host: float = 0.0) -> None:
    for phase, seconds in WORK.items():
        clock.mark(phase)
        device.host(host)
        device.submit(scale * seconds)
        clock.mark(None)
    clock.lap()


def seconds(total: float, **phases: float) -> Any:
    return pytest.approx(dict.fromkeys((*DEVICE_PHASES, "idle", "exposed_wait"), 0.0) | {"total": total} | phases)


def test_work_goes_to_the_phase_that_submits_it_however_late_it_is_done(clock: DeviceClock, device: Device) -> None:
    for scale in (1, 2, 3):
        step(clock, device, scale)
    assert clock.ready() == []  # the host has all submitted at once
    device.host(7.5)
    assert clock.ready() == [seconds(7.5, **WORK)]
    device.host(37.4)
    assert clock.ready() == [seconds(15, **{phase: 2 * each for phase, each in WORK.items()})]
    assert clock.ready() == []
    device.host(0.1)
    assert clock.ready() == [seconds(22.5, **{phase: 3 * each for phase, each in WORK.items()})]
    assert device.waited == 0


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        pytest.param(
            "data_wait host3 forward device2 data_wait host0.5 lap forward device1 callbacks lap",
            [seconds(5, idle=3, forward=2), seconds(1, forward=1)],
            id="waits for data, or has work left",
        ),
        pytest.param(
            "callbacks device1 backward host5 device2 other lap",
            [seconds(7, idle=1, backward=6)],
            id="outside the four phases, and starving within one",
        ),
        pytest.param(
            "optimizer device1 forward device2 backward device3 optimizer device4 lap",
            [seconds(10, optimizer=5, forward=2, backward=3)],
            id="a phase twice",
        ),
        pytest.param(
            "forward device1 lap device2 other lap",
            [seconds(1, forward=1), seconds(2, forward=2)],
            id="a phase over the end of a step",
        ),
    ],
)
def test_time_on_the_device_goes_to_phases(clock: DeviceClock, device: Device, script: str, steps: list[Any]) -> None:
    for word in script.split():
        if word == "lap":
            clock.lap()
        elif word.startswith("host"):
            device.host(float(word.removeprefix("host")))
        elif word.startswith("device"):
            device.submit(float(word.removeprefix("device")))
        else:
            clock.mark(word)
    assert clock.finish() == steps


def test_what_lies_between_a_lap_and_a_restart_belongs_to_no_step(clock: DeviceClock, device: Device) -> None:
    clock.mark("transfer")
    device.submit(100)
    clock.mark(None)
    clock.restart()  # before the first step
    step(clock, device)
    clock.mark("transfer")
    device.submit(50)  # a validation
    clock.mark(None)
    clock.restart()
    clock.restart()
    step(clock, device, 2)
    device.host(100)
    assert clock.ready() == []
    second = seconds(15, **{phase: 2 * each for phase, each in WORK.items()})
    assert clock.finish() == [seconds(7.5, **WORK, gap=50), second]
    assert clock.finish() == []
    device.submit(50)
    clock.restart()  # after the step before was read
    step(clock, device)
    assert clock.finish() == [seconds(7.5, **WORK)]


def test_a_gap_begins_when_the_device_has_done_what_steps_gave_it(clock: DeviceClock, device: Device) -> None:
    """The host submits three steps at once, validates, which waits for the device, and saves for three seconds."""
    for _ in range(3):
        step(clock, device)
    device.submit(2)
    device.host(24.5)
    clock.restart()
    device.host(3)
    clock.restart()
    assert device.now == 27.5
    *others, latest = clock.ready()
    assert [*others, latest] == [seconds(7.5, **WORK)] * 2 + [seconds(7.5, **WORK, gap=5)]
    step(clock, device)
    clock.restart()
    assert clock.finish() == [seconds(7.5, **WORK, gap=0)]


def test_marks_that_change_nothing_record_nothing(clock: DeviceClock, device: Device) -> None:
    before = device.recorded
    for phase in (None, "data_wait", "other", "callbacks", None):
        clock.mark(phase)
    assert device.recorded == before
    for phase in ("forward", "forward", "callbacks", "other"):
        clock.mark(phase)
    assert device.recorded == before + 2


@pytest.mark.parametrize("gap", [False, True])
def test_events_are_used_again(clock: DeviceClock, device: Device, gap: bool) -> None:
    def some(count: int) -> int:
        for _ in range(count):
            step(clock, device, host=0.1)
            if gap:
                clock.mark("transfer")
                clock.restart()
                clock.mark(None)
            device.host(7.5)
            clock.ready()
        return device.made

    assert some(10) == some(1000)


def test_a_clock_that_nobody_reads_keeps_few_events_and_every_step(
    clock: DeviceClock, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_clock, "MOST_PENDING", 5)
    for number in range(1, 51):
        step(clock, device, number)
        if number == 25:
            clock.restart()
    assert device.waited == 45
    assert device.made <= (5 + 2) * 2 * (len(WORK) + 1)
    assert [each["total"] for each in clock.finish()] == pytest.approx([7.5 * number for number in range(1, 51)])


def test_a_wait_for_other_ranks_is_part_of_the_phase_it_lies_in(clock: DeviceClock, device: Device) -> None:
    clock.mark("backward")
    device.submit(4)
    clock.wait()
    device.submit(2)
    clock.waited()
    device.submit(1)
    clock.mark(None)
    clock.wait()
    device.submit(0.5)
    clock.waited()
    clock.lap()
    assert clock.finish() == [seconds(7.5, backward=7, idle=0.5, exposed_wait=2.5)]


def test_a_step_with_very_many_changes_keeps_few_events(
    clock: DeviceClock, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_clock, "MOST_MARKS", 20)
    for _ in range(100):
        clock.mark("transfer")
        device.submit(1)
        clock.mark(None)
    assert device.made <= 21
    clock.lap()
    step(clock, device)
    assert clock.finish() == [seconds(100, transfer=10, idle=90), seconds(7.5, **WORK)]


@pytest.mark.parametrize(("kind", "streams"), [("cuda", ("stream",)), ("xpu", ("stream",)), ("mps", ())])
def test_events_are_those_of_the_accelerator(
    device: Device, kind: str, streams: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPS has one stream, which its events do not take."""
    given: list[tuple[Any, ...]] = []

    class Own(Event):
        def record(self, *streams: Any) -> None:
            given.append(streams)
            super().record()

    module = getattr(torch, kind)
    monkeypatch.setattr(module, "Event", lambda enable_timing: Own(device))
    monkeypatch.setattr(module, "current_stream", lambda device: "stream", raising=False)
    if hasattr(module, "is_current_stream_capturing"):
        monkeypatch.setattr(module, "is_current_stream_capturing", lambda: False)
    clock = DeviceClock(device=torch.device(kind))
    step(clock, device)
    assert clock.finish() == [seconds(7.5, **WORK)]
    assert set(given) == {streams}


def test_no_event_is_asked_while_a_graph_is_captured(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would break the graph."""
    accelerator = Accelerator(device)
    monkeypatch.setattr(device_clock, "module_of", lambda _: accelerator)
    clock = DeviceClock()
    step(clock, device)
    device.host(7.5)
    accelerator.captures = True
    monkeypatch.setattr(Event, "query", lambda _: pytest.fail("it was asked"))
    assert clock.ready() == []
    monkeypatch.undo()
    accelerator.captures = False
    assert clock.ready() == [seconds(7.5, **WORK)]


def test_events_go_where_the_optimizer_steps(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of phases in which another stream is the current one, as of a batch that is copied ahead."""
    accelerator = Accelerator(device)
    monkeypatch.setattr(device_clock, "module_of", lambda _: accelerator)
    clock = DeviceClock()
    for _ in range(2):
        before = len(accelerator.events)
        accelerator.stream = "copies"
        clock.mark("transfer")
        accelerator.stream = "computes"
        for phase in ("forward", "backward", "optimizer", None):
            clock.mark(phase)
        accelerator.stream = "copies"
        clock.lap()
    assert [event.stream for event in accelerator.events[before:]] == ["computes"] * 6
