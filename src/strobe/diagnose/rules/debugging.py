"""Switches that help to find a bug, and slow down each operation until they are taken back."""

from strobe.diagnose.predict import NOTABLE, Step, up_to, without
from strobe.diagnose.rules import Finding
from strobe.present.format import duration
from strobe.records.run import Record

ANOMALY, PROFILER = "trainer.detect_anomaly", "trainer.profiler"
PROFILERS = {"AdvancedProfiler": "advanced", "PyTorchProfiler": "pytorch"}  # those that watch each call; by their class
COST = 0.8  # of the forward and the backward pass, that both together take at most


def debugging(record: Record, step: Step) -> Finding | None:
    """Anomaly detection or a profiler of all calls is on; what that costs is not known, but bounded."""
    profiler = str(record.setting(PROFILER))
    anomaly, profiled = record.setting(ANOMALY) is True, profiler in PROFILERS.values()
    passes = sum(record.seconds(name) for name in ("forward", "backward"))
    if not (anomaly or profiled) or COST * passes < NOTABLE * step.seconds:
        return None
    most = without(step, compute=COST * passes)
    switches = ["Trainer(detect_anomaly=True) checks each gradient and remembers where it was made"] * anomaly
    switches += [f'Trainer(profiler="{profiler}") records each call'] * profiled
    computing = f"forward and backward take {duration(passes)} of each {duration(step.seconds)} step."
    return Finding(
        "debugging",
        "Anomaly detection is on" if anomaly else "A profiler of all calls is on",
        f"{' and '.join(switches)}; {computing}",
        "Switch it off, unless you are looking for a bug.",
        up_to(most),
        (f"{ANOMALY}=false",) * anomaly + (f"{PROFILER}=null",) * profiled,
    )
