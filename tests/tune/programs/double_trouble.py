import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self, inputs=784, hidden=512):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, 64))
        self.decoder = nn.Sequential(nn.Linear(64, hidden), nn.GELU(), nn.Linear(hidden, inputs))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


loader = DataLoader(TensorDataset(torch.rand(12800, 784)), batch_size=256, shuffle=True)
trainer = L.Trainer(max_epochs=500, accelerator="cpu", precision="64-true")
trainer.fit(Autoencoder(), loader)
