"""What the server of fresh processes imports once, so that each need not: libraries only, nothing is begun."""

import lightning
import numpy as np
import torch
from lightning.pytorch import loggers

import callbacks
import strobe.compose

LIBRARIES = (lightning, loggers, np, torch, callbacks, strobe.compose)
