"""PyTorch on hccl: torch.distributed.init_process_group("hccl").

`import torch` is enough for init_process_group("hccl"). This module adds what PyTorch does not
have: tensors in memory that the ranks of a host share, so that collectives do not copy them; and
the fusion planner, with or without DistributedDataParallel. It imports torch at the first use.
"""

import importlib.util
import typing

from hccl.torch._memory import empty, share_

if typing.TYPE_CHECKING:
    from hccl.torch import optim as optim
    from hccl.torch._combined import CombinedGradients
    from hccl.torch._ddp import DistributedDataParallel

__all__ = [
    "CombinedGradients",
    "DistributedDataParallel",
    "as_gloo",
    "as_npu",
    "empty",
    "optim",
    "share_",
]
_LATER = {"CombinedGradients": "_combined", "DistributedDataParallel": "_ddp"}


def as_gloo() -> None:
    """Makes "gloo" mean hccl, in this process and in processes that it starts (HCCL_AS_GLOO=1).

    It is for frameworks that know only Gloo on CPUs. Later groups with the backend "gloo", or
    without a backend for CPU tensors, run on hccl; `dist.get_backend()` still returns "gloo". Call
    as_gloo() before init_process_group(), on all ranks. A second call does nothing."""
    importlib.import_module("hccl.torch._register").as_gloo()


def as_npu() -> None:
    """Makes torch_npu and apex importable, unless they are installed, and makes "npu" mean the CPU.

    A second call does nothing. ModuleNotFoundError: the package hccl-ascend is not installed."""
    if importlib.util.find_spec("hccl.torch.npu") is None:
        raise ModuleNotFoundError(
            "Ascend's names are in another package, hccl-ascend: "
            "pip install --no-index --find-links dist 'hccl[ascend]'"
        )
    importlib.import_module("hccl.torch.npu").as_npu()


def __getattr__(name: str) -> typing.Any:
    if name == "optim":
        return importlib.import_module("hccl.torch.optim")
    if name not in _LATER:
        raise AttributeError(f"module 'hccl.torch' has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"hccl.torch.{_LATER[name]}"), name)
    return globals()[name]
