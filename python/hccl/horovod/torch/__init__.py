"""Horovod's names for PyTorch, on hccl.Communicator and hccl.Fusion. All ranks must call the same
collectives in the same order; one thread at a time calls them.

    import horovod.torch as hvd             # after hccl.horovod.install(), or
    import hccl.horovod.torch as hvd
"""

from __future__ import annotations

from hccl._horovod import (
    ProcessSet, absent, add_process_set, cross_rank, cross_size, global_process_set, init,
    is_homogeneous, is_initialized, local_rank, local_size, no, rank, remove_process_set, shutdown,
    size,
)
from hccl.horovod.torch import _optimizer, elastic
from hccl.horovod.torch._norm import SyncBatchNorm
from hccl.horovod.torch._objects import (
    allgather_object, broadcast_object, broadcast_object_fn, broadcast_optimizer_state,
    broadcast_parameters,
)
from hccl.horovod.torch._ops import (
    Average, Compression, Max, Min, Product, Sum, allgather, allgather_async, allreduce, allreduce_,
    allreduce_async, allreduce_async_, alltoall, alltoall_async, barrier, broadcast, broadcast_,
    broadcast_async, broadcast_async_, grouped_allgather, grouped_allgather_async,
    grouped_allreduce, grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_,
    grouped_reducescatter, grouped_reducescatter_async, poll, reducescatter, reducescatter_async,
    sparse_allreduce_async, synchronize,
)
from hccl.horovod.torch._optimizer import DistributedOptimizer

Adasum = "adasum"  # refused, with the reason


def join(device: int = -1) -> int:
    """Waits until all ranks have called it, after the same number of steps, and returns the last
    rank. If a rank still trains, all ranks get an HcclError that names both calls."""
    _optimizer.barrier_of_plans()
    barrier()
    return size() - 1


mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = no
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = no
_trace = "HCCL_SPLIT=trace measures, and hccl-plan shows the traces"
start_timeline, stop_timeline = absent("start_timeline", _trace), absent("stop_timeline", _trace)

__all__ = [name for name in globals() if name[0] != "_" and name != "annotations"]
