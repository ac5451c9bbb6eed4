"""The schema of ``model``: the network and its training."""

from dataclasses import dataclass

from omegaconf import MISSING

from strobe.app.config.schema import knob


@dataclass
class ModelConfig:
    """The network, its optimizer and its schedule."""

    _target_: str = MISSING
    stem: str = knob("imagenet", choices=["imagenet", "cifar"])  # 7x7/2 + max-pool, or 3x3/1
    weights: str | None = None  # null | imagenet | a file
    channels_last: bool = False
    compile: bool = False
    label_smoothing: float = knob(0.0, min=0, below=1)
    optimizer: str = knob("adam", choices=["adam", "adamw", "sgd"])
    lr: float = knob(1e-3, above=0)
    weight_decay: float = knob(0.0, min=0)
    fused: bool | None = None  # the optimizer's update in one kernel; null: as torch chooses
    momentum: float = knob(0.9, min=0, below=1)  # sgd without a schedule; one_cycle moves it from 0.95 to 0.85 and back
    scheduler: str = knob("none", choices=["none", "one_cycle"])
    lr_scaling: str = knob("none", choices=["none", "linear"])
    lr_batch_size: int = knob(32, min=1)  # the batch size for which lr was chosen
