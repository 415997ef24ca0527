"""Batch normalization with the statistics of all ranks."""

from __future__ import annotations

import torch
from hccl import _world
from hccl.horovod.torch import _ops
from torch.nn.modules.batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm* that, in training, uses the mean and variance over the batches of all
    ranks. The batches may differ in length. Forward and backward call collectives, so all ranks
    must call forward and backward of the same layers in the same order."""

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002  torch's name
        if input.dim() < 2:
            raise ValueError(f"hccl: SyncBatchNorm: an input of {input.dim()} dimensions")

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        self._check_input_dim(input)
        of_batch = self.training or self.running_mean is None
        if not of_batch or _world.size() == 1:
            return super().forward(input)
        axes = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        wide = input.double()
        count = wide.new_full((1,), input.numel() // input.size(1))
        totals = _ops.allreduce(torch.cat([wide.sum(axes), count]), op=_ops.Sum)
        number = totals[-1]
        mean = totals[:-1] / number
        centered = wide - mean.view(shape)
        variance = _ops.allreduce(centered.square().sum(axes), op=_ops.Sum) / number
        if self.training and self.running_mean is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                tracked = self.num_batches_tracked.item()
                rate = 1 / tracked if self.momentum is None else self.momentum
                unbiased = variance * number / (number - 1)
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), rate)
        result = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(input.dtype)
