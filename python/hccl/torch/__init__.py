"""PyTorch on hccl: torch.distributed.init_process_group("hccl").

Importing torch is enough for that. This module adds what PyTorch has no call for: tensors in memory
that the ranks of a host share, which collectives do not copy, and a DistributedDataParallel with
the fusion planner. It imports torch at the first use.
"""

import typing

from hccl.torch._memory import empty, share_
from hccl.torch.npu import as_npu

if typing.TYPE_CHECKING:
    from hccl.torch._ddp import DistributedDataParallel

__all__ = ["DistributedDataParallel", "as_npu", "empty", "share_"]  # noqa: F822


def __getattr__(name):
    if name != "DistributedDataParallel":
        raise AttributeError(f"module 'hccl.torch' has no attribute {name!r}")
    from hccl.torch._ddp import DistributedDataParallel

    globals()[name] = DistributedDataParallel
    return DistributedDataParallel
