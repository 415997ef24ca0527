"""The types of hccl.torch that type checkers see: mypy checks this file beside torch, and it never runs."""

from collections.abc import Sequence
from typing import assert_type

import hccl.torch
import hccl.torch.optim
import torch


def memory(model: torch.nn.Linear, tensors: list[torch.Tensor]) -> None:
    assert_type(hccl.torch.empty(2, 3), torch.Tensor)
    assert_type(hccl.torch.empty((2, 3), dtype=torch.bfloat16), torch.Tensor)
    assert_type(hccl.torch.share_(model), torch.nn.Linear)
    assert_type(hccl.torch.share_(tensors), list[torch.Tensor])
    hccl.torch.empty("2")  # type: ignore[arg-type]
    hccl.torch.empty(2, kind=torch.int8)  # type: ignore[call-arg]
    hccl.torch.share_(3)  # type: ignore[type-var]


def planned(model: torch.nn.Linear) -> None:
    def hook(parameters: Sequence[torch.nn.Parameter]) -> None:
        assert_type(parameters[0].grad, torch.Tensor | None)

    ddp = hccl.torch.DistributedDataParallel(model, split_group="ranks")
    ddp.register_segment_hook(hook)
    assert_type(ddp.segments, list[int])
    assert_type(ddp.gradients, list[str])
    assert_type(ddp.trace_text(), str)
    ddp.register_segment_hook(3)  # type: ignore[arg-type]
    gradients = hccl.torch.CombinedGradients(model)
    with gradients.no_sync():
        assert_type(gradients.write_trace("trace.pb"), None)
    hccl.torch.CombinedGradients(model, split_group=3)  # type: ignore[arg-type]
    hccl.torch.CombinedGradients(model, overlap_forward=True)  # type: ignore[arg-type]
    optimizer = hccl.torch.optim.FusedSGD(model.parameters(), lr=1e-3)
    overlapped = hccl.torch.CombinedGradients(model, overlap_forward=optimizer)
    assert_type(overlapped.synchronize(), None)


def optimizers(model: torch.nn.Linear) -> None:
    optimizer = hccl.torch.optim.FusedAdamW(model.parameters(), lr=1e-3)
    optimizer.step(max_norm=1.0, zero_grad=True)
    assert_type(optimizer.grad_norm, torch.Tensor | None)
    hccl.torch.optim.FusedAdamW(model.parameters(), speed=1)  # type: ignore[call-arg]
    assert_type(hccl.torch.as_npu(), None)
