"""Other people's trainers under ``strobe run``, as the package index has them today: each is seen without an edit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT
from support.watched import record, rows

HUB = "huggingface_hub safetensors tqdm httpx2 httpcore2 h11 truststore anyio"
FRAMEWORKS = {  # and what they need beside torch
    "transformers": f"{HUB} accelerate tokenizers regex",
    "accelerate": HUB,
    "pytorch-ignite": "",
    "skorch": "scikit-learn scipy joblib threadpoolctl tabulate tqdm narwhals",
    "stable-baselines3": "gymnasium cloudpickle farama-notifications pandas python-dateutil matplotlib",
    "torch-geometric": "tqdm requests xxhash aiohttp",
}
NET = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(net.parameters())
loader = DataLoader(TensorDataset(torch.randn(160, 8), torch.randint(2, (160,))), 16)
"""
SCRIPTS = {
    "transformers": """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
texts = [{"input_ids": torch.arange(6), "labels": n % 2} for n in range(40)]
given = TrainingArguments("left", per_device_train_batch_size=2, num_train_epochs=1, report_to=[], use_cpu=True)
Trainer(BertForSequenceClassification(config), given, train_dataset=texts).train()
""",
    "accelerate": NET
    + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for epoch in range(2):
    for images, labels in loader:
        accelerator.backward(nn.functional.cross_entropy(net(images), labels))
        optimizer.step()
        optimizer.zero_grad()
""",
    "pytorch-ignite": NET
    + """
from ignite.engine import create_supervised_trainer
create_supervised_trainer(net, optimizer, nn.CrossEntropyLoss()).run(loader, max_epochs=2)
""",
    "skorch": NET
    + """
from skorch import NeuralNetRegressor
images = torch.randn(160, 8).numpy()
NeuralNetRegressor(net, max_epochs=2, batch_size=16, train_split=None).fit(images, images[:, :2])
""",
    "stable-baselines3": """
from stable_baselines3 import PPO
PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=5, device="cpu").learn(128)
""",
    "torch-geometric": """
import torch
from torch_geometric.nn import GCNConv
layer = GCNConv(4, 2)
optimizer = torch.optim.Adam(layer.parameters())
nodes, edges = torch.randn(30, 4), torch.randint(30, (2, 90))
for epoch in range(21):
    optimizer.zero_grad()
    layer(nodes, edges).square().mean().backward()
    optimizer.step()
""",
}


@pytest.mark.network
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_needs_no_edit(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site-packages"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, "--target", str(site)]
    subprocess.run([*uv, "--no-deps", framework, *FRAMEWORKS[framework].split()], check=True)
    (tmp_path / "train.py").write_text(SCRIPTS[framework])
    line = [sys.executable, "-m", "strobe.run", "--out", "here", "train.py"]
    paths = os.pathsep.join([str(site), str(ROOT / "src")])
    done = subprocess.run(line, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = record()
    assert summary["status"] == "completed"
    assert summary["verdict"] in " ".join(done.stderr.split())
    updates = sum(int(row["updates"]) for row in rows())
    assert 18 <= updates <= 20  # an epoch's last batch is trained on after Accelerate's loop over the loader
    assert all(summary["step_seconds"][phase] > 0 for phase in ("forward", "backward", "optimizer"))
