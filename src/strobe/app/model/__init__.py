"""The network and the LightningModule around it."""
