"""``python -m strobe.app.storage [FOLDER [MILLISECONDS]]`` serves a folder as storage, and says how to train on it."""

from strobe.process.signals import listen

if __name__ == "__main__":
    listen()  # before libraries are imported

import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from strobe.app.storage.serving import BUCKET, CREDENTIALS, SlowLine, serving, upload
from strobe.process.launch import start

LATENCY = 0.02  # seconds, as that of a bucket in the same region


def main() -> None:
    """Serve until Ctrl-C."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _tiles()
    latency = float(sys.argv[2]) / 1e3 if len(sys.argv) > 2 else LATENCY
    files = {f"{folder.name}/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
    data = "eurosat" if any(name.endswith(".tif") for name in files) else "image_folder"
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as endpoint:
        upload(endpoint, files)
        slowed: AbstractContextManager[SlowLine | None] = SlowLine(endpoint, latency=latency)
        with slowed if latency else nullcontext() as line:
            variables = " ".join(f"{name}={value}" for name, value in CREDENTIALS.items())
            print(f"{len(files):,} files of {folder} are at s3://{BUCKET}/{folder.name}, {latency * 1e3:g} ms away:\n")
            print(f"  {variables} \\\n  python train.py data={data} data.root=s3://{BUCKET}/{folder.name} \\")
            print(f"    data.endpoint={line.endpoint if line else endpoint} engine=litdata loader=native\n")
            print("Ctrl-C ends it.", flush=True)
            while True:
                time.sleep(3600)


def _tiles() -> Path:
    """Sixty generated tiles a class, as data=sample has them."""
    from strobe.app.data.synthetic import generate

    return generate(Path("data/generated/tiles/seed42-60"))


if __name__ == "__main__":
    start(main)
