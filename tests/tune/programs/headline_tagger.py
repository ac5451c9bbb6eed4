import argparse

import lightning as L
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PAD, VOCAB, CLASSES = 0, 3000, 8


def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    docs = []
    for _ in range(n):
        label = int(torch.randint(CLASSES, (1,), generator=g))
        length = int(torch.randint(12, 40, (1,), generator=g))
        words = torch.randint(1, VOCAB, (length,), generator=g)
        topical = torch.rand(length, generator=g) < 0.3
        words[topical] = words[topical] // CLASSES * CLASSES % (VOCAB - CLASSES) + label + 1
        docs.append((words.clamp(max=VOCAB - 1), label))
    return docs


def collate(items):
    ids = pad_sequence([w for w, _ in items], batch_first=True, padding_value=PAD)
    return ids, torch.tensor([y for _, y in items])


class Tagger(L.LightningModule):
    def __init__(self, d=64, layers=2, lr=5e-4):
        super().__init__()
        self.save_hyperparameters()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(64, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d, CLASSES)

    def forward(self, ids):
        mask = ids == PAD
        h = self.enc(self.emb(ids) + self.pos[: ids.size(1)], src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        return self.head((h * keep).sum(1) / keep.sum(1))

    def training_step(self, batch, _):
        ids, y = batch
        logits = self(ids)
        self.log("acc", (logits.argmax(-1) == y).float().mean(), prog_bar=True)
        return nn.functional.cross_entropy(logits, y, label_smoothing=0.05)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=150)
    return p.parse_args()


if __name__ == "__main__":
    args = cli()
    torch.set_num_threads(args.threads)
    L.seed_everything(0)
    dl = DataLoader(make_corpus(3200, 0), batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    L.Trainer(max_epochs=args.epochs, logger=False, enable_checkpointing=False).fit(Tagger(), dl)
