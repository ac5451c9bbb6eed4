"""The command ``strobe ceilings``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import strobe.app.needed  # noqa: F401  # isort: skip

from omegaconf import DictConfig

from strobe.app.config.compose import recomposed
from strobe.app.config.mistakes import MISTAKES, mistake
from strobe.app.config.register import composing, workers_beside
from strobe.app.config.roots import check_root
from strobe.measure.environment import usable_cores
from strobe.present.format import counted, interval
from strobe.present.terminal import clock, say
from strobe.process.launch import parser_of, quieten_kineto, start

if TYPE_CHECKING:
    from rich.console import Console

NAMES = {
    "storage": "storage (not decoded)",
    "loader": "loader (without training)",
    "model": "model (one batch replayed)",
    "transfer": "transfer (host to GPU)",
    "joint": "joint (on shared cores)",
}
HELP = """Measures what loader and model each reach alone, in images/s, for a configuration of train.py.

Each is measured for ceilings_seconds (5) at most, once it is warm. It keeps no trained weights and writes no files.

Examples
  strobe ceilings data=eurosat loader=rasterio engine.num_workers=2
  strobe ceilings data.batch_size=128 ceilings_seconds=20 --json
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; exits with a sentence if nothing can be measured."""
    parser = parser_of("ceilings", HELP)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="GROUP=CHOICE or KEY=VALUE, as for train.py")
    parser.add_argument("--json", action="store_true", help="print the record, as in summary.json")
    given = parser.parse_args(arguments)
    try:
        record, cfg = _measure(given.overrides)
    except MISTAKES as error:
        raise mistake(error, overrides=given.overrides) from None
    if given.json:
        print(json.dumps(record, indent=2))
    else:
        from rich.console import Console

        print_ceilings(record, cfg, Console())
    if record["loader"] is None and record["model"] is None:
        sys.exit(1)  # the reason has been printed


def _measure(overrides: Sequence[str]) -> tuple[dict[str, Any], DictConfig]:
    """The record's ``ceilings``, and the configuration; torch is imported only after the configuration was checked."""
    with composing(), recomposed(overrides) as cfg:
        check_root(cfg)
        quieten_kineto()
        import lightning

        from strobe.app.build.instantiate import set_up_data
        from strobe.app.build.trainer import lone_trainer
        from strobe.app.run.ceilings import Ceilings
        from strobe.app.run.forecast import BEGINNING
        from strobe.app.run.train import quieten
        from strobe.callbacks.accelerators import is_accelerator
        from strobe.probe.ranks import together

        quieten()
        lightning.seed_everything(cfg.seed, workers=True, verbose=False)
        data = set_up_data(cfg)
        trainer = lone_trainer(cfg)
    # Outside that block Lightning does not see Hydra, and starts the other ranks by this command as it was given.
    if trainer.world_size > 1 and trainer.strategy.launcher:
        trainer.strategy.launcher.launch(trainer.strategy.setup_environment)
    with together(trainer) as ranks:
        ceilings = Ceilings(cfg, data, overrides, ranks)
        if trainer.global_rank:
            if ranks:
                ceilings.take_part()
            sys.exit()
        seconds = (2 + is_accelerator(trainer.strategy.root_device)) * (cfg.ceilings_seconds + BEGINNING)
        print(f"Measuring loader and model alone, about {clock(seconds)}", file=sys.stderr)
        record = ceilings.measure()
        record["storage"] = ceilings.storage()
        return record, cfg


def print_ceilings(record: dict[str, Any], cfg: Any, console: "Console") -> None:
    """Print a table of what was measured, and what bounds training."""
    from rich.table import Table

    workers = workers_beside(cfg.engine)
    title = f"batch {cfg.data.batch_size}, {workers} workers"
    if record["batch_bytes"] is not None:
        title += f", {record['batch_bytes'] / 1e6:,.2f} MB a batch"
    table = Table("ceiling", "images/s", "95% interval", "CPU ms an image", title=title)
    for name, told in NAMES.items():
        if (rate := (record.get("storage") or {}).get("rate") if name == "storage" else record[name]) is not None:
            low, high = record["intervals"].get(name) or (None, None)
            cpu = record["cpu_seconds"].get(name)
            table.add_row(told, _rate(rate), interval(low, high, _rate), "" if cpu is None else f"{cpu * 1e3:,.2f}")
    if table.row_count:
        console.print(table)
    if record["reason"] is not None:
        say(console, f"Not measured: {record['reason']}")
    say(console, *explain(record, workers=workers))


def explain(record: dict[str, Any], *, workers: int) -> list[str]:
    """Sentences on what bounds training."""
    rates = {side: record[side] for side in ("loader", "model", "transfer") if record[side] is not None}
    if "loader" not in rates or "model" not in rates:
        return []
    first, second = sorted(rates, key=lambda side: float(rates[side]))[:2]
    sentences = [
        f"The {first} bounds training: it reaches {_rate(rates[first])} images/s, and the {second} "
        f"{_rate(rates[second])} ({rates[second] / rates[first]:,.1f} times as many)."
    ]
    if record["joint"] is None:
        return sentences
    joint, how = record["joint"], "The training process loads and computes one after the other"
    if workers:
        how = f"Loader and model share {counted(usable_cores(), 'core')}"
    if joint < rates[first]:
        sentences.append(f"{how}, so together they reach about {_rate(joint)} images/s.")
    else:
        sentences.append(f"{how}, which leave room for both.")
    return sentences


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    start(main)
