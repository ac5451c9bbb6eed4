"""Memory over a long training, however Strobe is attached to it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

STEPS, EVERY = 100_000, 10_000
HELD = f"""
import json
from pathlib import Path
import torch
from torch.utils.data import DataLoader, TensorDataset

held = []

def ask(step):
    if step % {EVERY} == 0:
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        held.append((int(resident) - int(shared)) * 4096)

loader = DataLoader(TensorDataset(torch.zeros(1000, 4)), 4)
"""
WATCHED = """
import strobe
loader = strobe.watch(loader)
"""
LOOP = f"""
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while step < {STEPS}:
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        step += 1
        ask(step)
print(json.dumps(held))
"""
TRAINER = f"""
from lightning.pytorch import Callback, LightningModule, Trainer
from strobe import Strobe

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Asking(Callback):
    def on_train_batch_end(self, trainer, *_):
        ask(trainer.global_step)

quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False)
trainer = Trainer(accelerator="cpu", max_epochs=-1, max_steps={STEPS}, callbacks=[Asking(), Strobe()], **quiet)
trainer.fit(Net(), loader)
print(json.dumps(held))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "under"),
    [(HELD + TRAINER, ()), (HELD + WATCHED + LOOP, ()), (HELD + LOOP, ("-m", "strobe.run"))],
    ids=["callback", "watch", "without an edit"],
)
def test_memory_is_flat_over_100000_steps(text: str, under: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    line = [sys.executable, *under, "train.py"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert list(tmp_path.glob("strobe-runs/*/*/summary.json")), done.stderr
    held = json.loads(done.stdout.splitlines()[-1])
    assert len(held) == STEPS // EVERY
    assert held[-1] - held[1] < 2e6  # a byte that each step kept would be 80 kB, an object of Python some MB
