"""Causal language model over SMILES strings, used later to propose candidate molecules."""

import math
import random

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

ATOMS = ["C", "C", "C", "c1ccccc1", "N", "O", "S", "F", "Cl", "C(=O)", "C(N)", "C#N", "[nH]", "OC", "N(C)", "C=C"]
VOCAB = ["<pad>", "<bos>", "<eos>"] + sorted(set("".join(ATOMS) + "()=#123"))
ID = {t: i for i, t in enumerate(VOCAB)}


class Smiles(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.lines = []
        for _ in range(n):
            body = "".join(rnd.choice(ATOMS) for _ in range(rnd.randint(12, 26)))
            if rnd.random() < 0.4:
                body += "(" + "".join(rnd.choice(ATOMS) for _ in range(4)) + ")"
            self.lines.append(body[:94])

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return torch.tensor([ID["<bos>"]] + [ID[c] for c in self.lines[i]] + [ID["<eos>"]])


def pad(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=ID["<pad>"])


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class SmilesLM(L.LightningModule):
    def __init__(self, dim=96, depth=2, heads=4, lr=3e-4, warmup=400):
        super().__init__()
        self.save_hyperparameters()
        self.tok = nn.Embedding(len(VOCAB), dim, padding_idx=0)
        self.pos = nn.Embedding(128, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(VOCAB), bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))

    def loss(self, ids):
        logits = self(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    def training_step(self, ids, _):
        loss = self.loss(ids)
        self.log("train/perplexity", loss.detach().exp(), prog_bar=True)
        return loss

    def validation_step(self, ids, _):
        self.log("val/loss", self.loss(ids), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, betas=(0.9, 0.95), weight_decay=0.1)
        w = self.hparams.warmup
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / w, math.sqrt(w / (s + 1))))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    L.seed_everything(2024)
    train, val = Smiles(60_000, 1), Smiles(320, 2)
    sampler = RandomSampler(train, replacement=True, num_samples=48_000)
    trainer = L.Trainer(
        accelerator="auto",
        precision="bf16-mixed",
        max_epochs=60,
        gradient_clip_val=1.0,
        callbacks=[LearningRateMonitor("step"), ModelCheckpoint(monitor="val/loss", save_last=True)],
    )
    trainer.fit(
        SmilesLM(),
        DataLoader(train, batch_size=16, sampler=sampler, collate_fn=pad),
        DataLoader(val, batch_size=32, collate_fn=pad),
    )


if __name__ == "__main__":
    main()
