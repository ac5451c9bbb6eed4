"""Classify roadside objects (pole, car, tree, pedestrian, sign, wall) from lidar point clouds."""

import lightning as L
import numpy as np
import torch
import torchmetrics
from scipy.spatial import cKDTree
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ["pole", "car", "tree", "pedestrian", "sign", "wall"]
RAW, KEPT = 1500, 256


def scan(kind, rng):
    """One raw scan of an object, in metres, with sensor noise."""
    u = rng.uniform(-1, 1, (RAW, 3))
    if kind == 0:
        u *= (0.1, 0.1, 2.5)
    elif kind == 1:
        u = np.sign(u) * np.abs(u) ** 0.3 * (2.1, 0.9, 0.7)
    elif kind == 2:
        u = u / np.linalg.norm(u, axis=1, keepdims=True) * rng.uniform(0.8, 1.8, (RAW, 1))
    elif kind == 3:
        u *= (0.25, 0.35, 0.9)
    elif kind == 4:
        u *= (0.03, 0.5, 0.5)
    else:
        u *= (0.08, 3.0, 1.1)
    return (u + rng.normal(0, 0.03, u.shape)).astype(np.float32)


def surface_features(points, k=16):
    """Normal and curvature at each point, from its neighbourhood."""
    _, near = cKDTree(points).query(points, k=k)
    local = points[near] - points[near].mean(1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", local, local) / k)
    return np.concatenate([vectors[:, :, 0], values[:, :1] / values.sum(1, keepdims=True)], 1)


def farthest_points(points, n, rng):
    picked = np.empty(n, dtype=np.int64)
    picked[0] = rng.integers(len(points))
    dist = np.full(len(points), np.inf)
    for i in range(1, n):
        dist = np.minimum(dist, ((points - points[picked[i - 1]]) ** 2).sum(1))
        picked[i] = dist.argmax()
    return picked


class Scans(Dataset):
    def __init__(self, count, seed, augment):
        self.seeds = np.arange(count) + seed
        self.augment = augment
        self.prepared = {}  # normals and sampling are slow: keep them after the first epoch

    def __len__(self):
        return len(self.seeds)

    def prepare(self, i):
        rng = np.random.default_rng(self.seeds[i])
        kind = int(rng.integers(len(KINDS)))
        points = scan(kind, rng)
        features = surface_features(points)
        keep = farthest_points(points, KEPT, rng)
        return np.concatenate([points[keep], features[keep]], 1).astype(np.float32), kind

    def __getitem__(self, i):
        if i not in self.prepared:
            self.prepared[i] = self.prepare(i)
        cloud, kind = self.prepared[i]
        if self.augment:
            a = np.random.uniform(0, 2 * np.pi)
            turn = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]], np.float32)
            cloud = np.concatenate([cloud[:, :3] @ turn, cloud[:, 3:6] @ turn, cloud[:, 6:]], 1)
        return torch.from_numpy(cloud), kind


class PointNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(
            nn.Conv1d(7, 64, 1),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Conv1d(64, 128, 1),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Conv1d(128, 512, 1),
        )
        self.head = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, len(KINDS)))
        self.acc = torchmetrics.Accuracy(task="multiclass", num_classes=len(KINDS))

    def forward(self, clouds):
        return self.head(self.point(clouds.transpose(1, 2)).amax(2))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=0.1)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.acc(self(batch[0]), batch[1])
        self.log("val_acc", self.acc, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, 4000)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(5, workers=True)
    train = DataLoader(Scans(240, 1000, True), batch_size=16, shuffle=True, num_workers=2)
    val = DataLoader(Scans(24, 90000, False), batch_size=8)
    trainer = L.Trainer(max_epochs=4000, accelerator="cpu", check_val_every_n_epoch=10, log_every_n_steps=10)
    trainer.fit(PointNet(), train, val)
