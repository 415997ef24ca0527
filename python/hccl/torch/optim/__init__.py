"""Fused optimizers. A step is one call of the library, which unscales, clips, steps and zeroes in
one pass over memory.

optimizer = hccl.torch.optim.FusedAdamW(model.parameters(), lr=1e-3)
optimizer.step(max_norm=1.0, zero_grad=True)
"""

from hccl.torch.optim._base import FusedOptimizer
from hccl.torch.optim._others import FusedAdamP, FusedBertAdam, FusedLamb, FusedRMSpropTF
from hccl.torch.optim._scaler import GradScaler
from hccl.torch.optim._torchs import (
    FusedAdadelta,
    FusedAdam,
    FusedAdamW,
    FusedRMSprop,
    FusedSGD,
)

__all__ = [
    "FusedAdadelta",
    "FusedAdam",
    "FusedAdamP",
    "FusedAdamW",
    "FusedBertAdam",
    "FusedLamb",
    "FusedOptimizer",
    "FusedRMSprop",
    "FusedRMSpropTF",
    "FusedSGD",
    "GradScaler",
]
