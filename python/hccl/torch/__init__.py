"""PyTorch on hccl: torch.distributed.init_process_group("hccl").

Importing torch is enough for that. This module adds what PyTorch has no call for: tensors in memory
that the ranks of a host share, which collectives do not copy. It imports torch at the first call.
"""

from hccl.torch._memory import empty, share_
from hccl.torch.npu import as_npu

__all__ = ["as_npu", "empty", "share_"]
