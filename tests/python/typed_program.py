"""The types that users' type checkers see: mypy checks this file, and it never runs."""

from typing import Any, Optional, assert_type

import hccl
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def collectives(comm: hccl.Communicator, array: Floats) -> None:
    assert_type(comm.allreduce(array, "avg", postscale=2), Floats)
    assert_type(comm.iallreduce(array), hccl.Handle[Floats])
    assert_type(comm.iallgather(array).wait(timeout=1.5), Floats)
    assert_type(comm.reduce(array, root=1), Optional[Floats])
    assert_type(comm.alltoallv(array, [1, 2]), Floats)
    assert_type(comm.ibarrier().wait(), None)
    assert_type(comm.split(color=None), Optional[hccl.Communicator])
    with comm.igroup() as handle:
        comm.allreduce(array)
    assert_type(handle, hccl.Handle[None])
    comm.timeout = None
    comm.iallreduce(array, op=hccl.WORLD, scale=2)  # type: ignore[call-arg]
    comm.send(array, "1")  # type: ignore[arg-type]


def messages(comm: hccl.Communicator, array: Floats) -> int:
    handle = comm.irecv(array, hccl.ANY_RANK, tag=3)
    assert_type(handle.wait(), Floats)
    assert_type(handle.done(), bool)
    return handle.source


def the_rest(comm: hccl.Communicator) -> None:
    assert_type(hccl.empty((2, 3), "float32"), NDArray[Any])
    assert_type(hccl.memory_info().in_use, int)
    with hccl.Fusion(comm, [("weights", hccl.empty(3))]) as fusion:
        assert_type(fusion.segments, list[int])
    assert_type(hccl.HcclError(9, "late").code, int)
