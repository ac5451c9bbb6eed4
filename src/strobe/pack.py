"""The command ``strobe pack``."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import strobe.app.needed  # noqa: F401  # isort: skip

from collections.abc import Sequence

from strobe.app.config.compose import recomposed
from strobe.app.config.mistakes import MISTAKES, mistake
from strobe.app.config.register import composing
from strobe.app.config.roots import check_root
from strobe.app.storage.address import check_address, is_remote
from strobe.overrides import applied, quoted
from strobe.process.launch import parser_of, start

HELP = """Writes the images of a configuration of train.py into shards of 64 MB, in LitData's optimized form.

OUT is a folder, or an address such as s3://bucket/shards. The same command goes on where it was interrupted.

Examples
  strobe pack --shards shards data=eurosat
  strobe pack --shards s3://bucket/shards data=image_folder data.root=photos data.framing=resize
  python train.py data=eurosat loader=packed loader.shards=shards
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the shards; exits with a sentence if that cannot be done."""
    parser = parser_of("pack", HELP)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="GROUP=CHOICE or KEY=VALUE, as for train.py")
    parser.add_argument("--shards", required=True, metavar="OUT", help="folder or address of the shards")
    given = parser.parse_args(arguments)
    try:
        print(_pack(given.shards, ["loader=packed", *given.overrides]))
    except MISTAKES as error:
        raise mistake(error, overrides=given.overrides) from None


def _pack(out: str, overrides: Sequence[str]) -> str:
    if is_remote(out):
        check_address("--shards", out)
        overrides = applied(overrides, [f"loader.shards={quoted(out)}"])  # which data.endpoint may be for
    with composing(), recomposed(overrides) as cfg:
        check_root(cfg)
        from strobe.app.build.instantiate import build_data
        from strobe.app.loaders.packed import contents_of
        from strobe.app.loaders.shards import write_shards

        data = build_data(cfg)
        data.prepare_data()
        source = data.sources()["train"]
        shards = write_shards(out, contents_of(source), source.targets, endpoint=cfg.data.get("endpoint"))
    return f"{shards.count:,} images in {len(shards.files):,} shards: {out}"


if __name__ == "__main__":
    start(main)
