"""Horovod's names for PyTorch, on hccl.Communicator and hccl.Fusion. All ranks must call the same
collectives in the same order, from one thread at a time.

    import horovod.torch as hvd             # after hccl.horovod.install(), or
    import hccl.horovod.torch as hvd
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hccl import _horovod, _world
from hccl._horovod import (
    ProcessSet, absent, add_process_set, global_process_set, is_initialized, local_rank, local_size,
    no, rank, remove_process_set, shutdown, size,
)
from hccl.horovod.torch import _objects, _optimizer, elastic
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

Adasum = "adasum"  # the collectives reject it and give the reason
_places = (0, 1, True)


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the ranks that mpirun, torchrun, Slurm or a rank table defines; without any of these, a
    world of one rank. Makes groups of the process sets, or none if process_sets is "dynamic". All
    ranks call it; a second call does not join again. comm: NotImplementedError unless None."""
    global _places
    fresh = not _world.joined()
    _horovod.init(comm, process_sets)
    if fresh:
        _places = _objects.gathered_places(local_rank(), local_size())


def cross_rank() -> int:
    """The number of this rank's host, among the hosts that have this local rank."""
    return _places[0]


def cross_size() -> int:
    """The number of hosts that have this local rank."""
    return _places[1]


def is_homogeneous() -> bool:
    """Returns whether all hosts have the same number of ranks."""
    return _places[2]


def join(device: int = -1) -> int:
    """Waits until all ranks have called join(), each after the same number of steps. Returns the
    number of the last rank. If some rank still trains, all ranks get an HcclError that names both
    calls."""
    _optimizer.barrier_of_plans()
    barrier()
    return size() - 1


mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = no
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = no
_trace = "HCCL_SPLIT=trace measures, and hccl-plan shows the traces"
start_timeline, stop_timeline = absent("start_timeline", _trace), absent("stop_timeline", _trace)

__all__ = [name for name in globals() if name[0] != "_" and name not in ("Any", "annotations")]
