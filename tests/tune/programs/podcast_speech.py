"""Speech / music / advert detection in podcasts: a GRU over log-mel frames.

Each recording is read whole, because loudness and the noise floor are taken
from the whole recording, and is then cut into overlapping one-second clips.
"""

import os
import random
import tempfile
from pathlib import Path

import lightning as L
import numpy as np
import scipy.io.wavfile
import scipy.ndimage
import scipy.signal
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RATE_IN, RATE, MELS, CLIP, HOP = 48000, 16000, 40, 100, 50
CLASSES = ("speech", "music", "advert")


def ensure_recordings(folder, count=8, seconds=120):
    folder.mkdir(parents=True, exist_ok=True)
    t = np.arange(RATE_IN) / RATE_IN
    for n in range(count):
        path = folder / f"episode_{n:03d}.wav"
        if path.exists():
            continue
        rng = np.random.default_rng(n)
        parts = []
        for _ in range(seconds):
            f0 = rng.uniform(90, 900)
            tone = sum(np.sin(2 * np.pi * f0 * k * t) / k for k in (1, 2, 3))
            parts.append(0.3 * tone + 0.1 * rng.standard_normal(RATE_IN))
        wave = (np.concatenate(parts) * 9000).clip(-32768, 32767).astype(np.int16)
        part = path.with_suffix(f".{os.getpid()}.part")
        scipy.io.wavfile.write(part, RATE_IN, wave)
        os.replace(part, path)
    return sorted(folder.glob("*.wav"))


def mel_matrix(n_freq):
    hz = 700 * (10 ** (np.linspace(0, 2840, MELS + 2) / 2595) - 1)
    bins = hz / (RATE / 2) * (n_freq - 1)
    k = np.arange(n_freq)
    up = (k - bins[:-2, None]) / (bins[1:-1] - bins[:-2])[:, None]
    down = (bins[2:, None] - k) / (bins[2:] - bins[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


class Podcasts(IterableDataset):
    def __init__(self, files):
        self.files = files
        self.mel = mel_matrix(257)

    def open(self, path):
        _, wave = scipy.io.wavfile.read(path)
        wave = scipy.signal.resample_poly(wave.astype(np.float32) / 32768, RATE, RATE_IN)
        wave = scipy.signal.sosfiltfilt(scipy.signal.butter(4, 60, "high", fs=RATE, output="sos"), wave)
        wave /= np.percentile(np.abs(wave), 95)
        _, _, spec = scipy.signal.stft(wave, RATE, nperseg=400, noverlap=240, nfft=512)
        mel = np.log1p(100 * (self.mel @ np.abs(spec).astype(np.float32)))
        floor = scipy.ndimage.percentile_filter(mel, 20, size=(1, 101))
        return (mel - floor).T.astype(np.float32)

    def __iter__(self):
        info = get_worker_info()
        rng = random.Random(info.seed if info else torch.initial_seed())
        while True:
            for path in rng.sample(self.files, len(self.files)):
                frames = self.open(path)
                starts = list(range(0, len(frames) - CLIP, HOP))
                rng.shuffle(starts)
                for s in starts:
                    label = (int(path.stem[-3:]) * 31 + s // 800) % len(CLASSES)
                    yield torch.from_numpy(frames[s : s + CLIP].copy()), label


class Detector(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(MELS)
        self.rnn = nn.GRU(MELS, 96, num_layers=2, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(96, len(CLASSES)))

    def training_step(self, batch, batch_idx):
        frames, label = batch
        hidden, _ = self.rnn(self.norm(frames))
        logits = self.out(hidden.mean(1))
        loss = nn.functional.cross_entropy(logits, label)
        self.log_dict({"loss": loss, "acc": (logits.argmax(1) == label).float().mean()}, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-4)


def main():
    torch.set_num_threads(1)  # a recurrent net this small gains nothing from more
    L.seed_everything(11)
    files = ensure_recordings(Path(tempfile.gettempdir()) / "podcast_episodes")
    loader = DataLoader(Podcasts(files), batch_size=8)
    trainer = L.Trainer(accelerator="cpu", max_steps=150_000, logger=False, enable_checkpointing=False)
    trainer.fit(Detector(), loader)


if __name__ == "__main__":
    main()
