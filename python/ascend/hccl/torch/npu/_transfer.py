"""torch_npu.contrib.transfer_to_npu: after its import, scripts for CUDA run on the CPU, and "nccl"
means "hccl"."""

import functools
import importlib
import importlib.abc
import importlib.machinery
import types
from typing import Any, Optional

import torch
import torch.distributed as dist

from hccl.torch.npu import _devices, _streams


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the module. Importing the module calls _transfer()."""

    name = "torch_npu.contrib.transfer_to_npu"

    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[Any]:
        return importlib.machinery.ModuleSpec(name, self) if name == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        _transfer(torch.npu)


def _transfer(npu: Any) -> None:
    """Makes torch.cuda mean torch.npu, "cuda" the CPU, and "nccl" the backend "hccl"."""
    if getattr(torch.cuda, "__hccl__", False):
        return
    _devices.also_cuda()
    importlib.import_module("torch._dynamo")  # needs the real torch.cuda
    for name, value in vars(npu).items():
        if not name.startswith("_") and not isinstance(value, types.ModuleType):
            setattr(torch.cuda, name, value)
    for name in ("memory", "random", "streams"):
        made = {key: value for key, value in vars(getattr(npu, name)).items() if key[:2] != "__"}
        getattr(torch.cuda, name).__dict__.update(made)
    torch.cuda.nvtx.__dict__.update(_streams.NVTX)
    torch.cuda.__hccl__ = True
    torch.cuda.amp.__dict__.update(autocast=npu.amp.autocast, GradScaler=npu.amp.GradScaler)
    torch.Tensor.cuda, torch.nn.Module.cuda = torch.Tensor.npu, torch.nn.Module.npu
    torch.Tensor.is_cuda = torch.Tensor.is_npu
    dist.init_process_group = _with_hccl(dist.init_process_group, 0)
    dist.new_group = _with_hccl(dist.new_group, 2)
    dist.is_nccl_available = lambda: True
    if not hasattr(dist, "ProcessGroupNCCL"):  # torch for CPUs has none
        dist.ProcessGroupNCCL = dist.ProcessGroupHCCL


def _with_hccl(call: Any, place: int) -> Any:
    """Wraps a function whose positional argument number `place` is the backend."""

    def of(backend: Any) -> Any:  # such as "nccl" or "cpu:gloo,cuda:nccl"
        return "hccl" if isinstance(backend, str) and "nccl" in backend.lower() else backend

    @functools.wraps(call)
    def with_hccl(*args: Any, **kwargs: Any) -> Any:
        args = tuple(of(each) if i == place else each for i, each in enumerate(args))
        if "backend" in kwargs:
            kwargs["backend"] = of(kwargs["backend"])
        return call(*args, **kwargs)

    return with_hccl
