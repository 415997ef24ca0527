"""Ranks of horovod.torch whose tensors have the same number of elements but different shapes: each call is an error,
and elements are never mixed. Prints "said: CASE" for each case that is refused."""

import os
import pathlib

import hccl
import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError

hvd.init()
rank = hvd.rank()


def two(first, second):
    """A tensor whose shape differs between the ranks."""
    return torch.arange(24.0).reshape(first if rank == 0 else second)


def trained():
    """The first step of a model whose weight is transposed on rank 1."""
    model = torch.nn.Linear(2, 3, bias=False) if rank == 0 else torch.nn.Linear(3, 2, bias=False)
    options = {"named_parameters": model.named_parameters(), "process_set": process_set}
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)
    model(torch.ones(1, model.in_features)).sum().backward()
    optimizer.step()


CASES = {
    "allreduce": lambda: hvd.allreduce(two((4, 6), (6, 4)), process_set=process_set),
    "allreduce of one row": lambda: hvd.allreduce(two((24,), (1, 24)), process_set=process_set),
    "allgather": lambda: hvd.allgather(two((2, 3, 4), (2, 4, 3)), process_set=process_set),
    "broadcast": lambda: hvd.broadcast(two((4, 6), (6, 4)), 0, process_set=process_set),
    "alltoall": lambda: hvd.alltoall(two((2, 3, 4), (2, 4, 3)), process_set=process_set),
    "alltoall with splits for one rank": lambda: hvd.alltoall(
        torch.ones(4, 2), [4] if rank == 0 else [2, 2], process_set=process_set
    ),
    "alltoall with more splits than rows": lambda: hvd.alltoall(
        torch.ones(4, 2), [3, 3] if rank == 0 else [2, 2], process_set=process_set
    ),
    "alltoall with splits that are no integers": lambda: hvd.alltoall(
        torch.ones(4, 2), [2.5, 1.5] if rank == 0 else [2, 2], process_set=process_set
    ),
    "alltoall of a number": lambda: hvd.alltoall(torch.ones((2, 2) if rank else ()), process_set=process_set),
    "sparse_allreduce": lambda: hvd.sparse_allreduce_async(
        torch.sparse_coo_tensor([[3]], [1.0], (10**7 if rank else 4,)), process_set=process_set
    )(),
    "reducescatter": lambda: hvd.reducescatter(two((2, 3, 4), (2, 4, 3)), process_set=process_set),
    "allreduce of integers by another op": lambda: hvd.allreduce(
        torch.tensor([6, 6]), op=hvd.Sum if rank else hvd.Average, process_set=process_set
    ),
    "allreduce of integers by another factor": lambda: hvd.allreduce(
        torch.tensor([6, 6]), op=hvd.Sum, postscale_factor=1.0 + rank, process_set=process_set
    ),
    "the maximum by another factor": lambda: hvd.allreduce(
        torch.ones(2), op=hvd.Max, postscale_factor=1.0 + rank, process_set=process_set
    ),
    "reducescatter of integers by another op": lambda: hvd.reducescatter(
        torch.tensor([6, 6]), op=hvd.Sum if rank else hvd.Average, process_set=process_set
    ),
    "sparse_allreduce by another op": lambda: hvd.sparse_allreduce_async(
        torch.sparse_coo_tensor([[3]], [1.0], (4,)), op=hvd.Sum if rank else hvd.Average, process_set=process_set
    )(),
    "DistributedOptimizer": trained,
}
for case, call in CASES.items():
    process_set = hvd.add_process_set([0, 1])
    try:
        print(f"wrong: {case}: {call()}", flush=True)
    except (ValueError, hccl.HcclError) as error:
        print(f"said: {case}\n{error}", flush=True)
        if case == "allreduce":
            assert f"shape {[4, 6] if rank == 0 else [6, 4]}" in str(error), error

# Rows may differ where Horovod allows that, and splits may leave rows out.
assert hvd.allgather(torch.ones(rank + 1, 2)).shape == (3, 2)
rows, counts = hvd.alltoall(torch.arange(3.0) + 10 * rank, [1, 1])
assert rows.tolist() == [rank, 10.0 + rank] and counts.tolist() == [1, 1]
own = torch.arange(3.0, requires_grad=True)
(hvd.alltoall(own, [1, 1])[0] * torch.tensor([2.0, 3.0])).sum().backward()
assert own.grad.tolist() == [2 + rank, 2 + rank, 0], own.grad
# The sum of integers stays exact, and an integer.
large = torch.sparse_coo_tensor([[0]], [33554433], (2,))
total = hvd.sparse_allreduce_async(large, op=hvd.Sum)().to_dense()
assert total.dtype == torch.int64 and total.tolist() == [2 * 33554433, 0], total
mean = hvd.sparse_allreduce_async(torch.sparse_coo_tensor([[0]], [2 * rank + 1], (1,)))().to_dense()
assert mean.dtype == torch.int64 and mean.tolist() == [2], mean



def resident():
    """The megabytes of this process in memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


# The memory of an operation that is done is free again, also if nobody keeps the communicator.
before = resident()
for _ in range(40):
    hvd.broadcast(torch.ones(1 << 21), 0)
assert resident() < before + 150, (before, resident())

state = hvd.elastic.TorchState(torch.nn.Linear(1, 1), step=0)
state.model = torch.nn.Linear(1, 1)
torch.nn.init.constant_(state.model.weight, 7.0 + rank)
state.commit()
torch.nn.init.constant_(state.model.weight, 9.0)
state.restore()
assert state.model.weight.item() == 7 + rank
state.sync()
assert state.model.weight.item() == 7
state.model = None
state.commit()
for error in (HorovodInternalError("lost"), HorovodInternalError()):
    try:
        raise error
    except hccl.HcclError as caught:
        assert str(caught) in ("lost", "") and caught.code == 4
print("all well", flush=True)
