"""Runs every collective as a process, and compares with numpy's results."""

import hccl
import numpy as np

INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
OPS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
COUNTS = [1, 7, 1000, 100_003]


def input_of(rank, count, dtype):
    """Small numbers: sums and products of 4 ranks are exact in every type, float16 included."""
    return (np.arange(count) * (rank + 3) % 3 + 1).astype(dtype)


def check_reductions(comm):
    n = comm.size
    for dtype in INTS + FLOATS:
        for count in COUNTS:
            inputs = np.stack([input_of(rank, count, dtype) for rank in range(n)])
            mine = inputs[comm.rank]
            for op, oracle in OPS.items():
                expected = oracle(inputs, axis=0).astype(dtype)
                where = f"{op} of {count} {np.dtype(dtype)}"

                array = mine.copy()
                assert comm.allreduce(array, op=op) is array
                np.testing.assert_array_equal(array, expected, where)

                out = np.empty_like(mine)
                before = mine.copy()
                assert comm.allreduce(mine, op=op, out=out) is out
                np.testing.assert_array_equal(out, expected, where)
                np.testing.assert_array_equal(mine, before, where)


def check_data_movement(comm):
    n, me = comm.size, comm.rank
    for dtype in INTS + FLOATS:
        for count in [1, 5, 3001]:
            inputs = [input_of(rank, count, dtype) for rank in range(n)]
            for root in range(n):
                array = inputs[me].copy()
                assert comm.broadcast(array, root=root) is array
                np.testing.assert_array_equal(array, inputs[root])

                array = inputs[me].copy()
                total = comm.reduce(array, root=root)
                assert (total is array) == (me == root)
                expected = sum(inputs).astype(dtype) if me == root else inputs[me]
                np.testing.assert_array_equal(array, expected)

                out = np.empty(count, dtype)
                whole = np.concatenate(inputs) if me == root else None
                comm.scatter(whole, root=root, out=out)
                np.testing.assert_array_equal(out, inputs[me])

            np.testing.assert_array_equal(comm.allgather(inputs[me]), np.concatenate(inputs))

            blocks = np.stack([inputs[me] * dtype(i % 2 + 1) for i in range(n)])
            part = comm.reduce_scatter(blocks)
            expected = sum(inputs).astype(dtype) * dtype(me % 2 + 1)
            assert part.shape == (1, count) and part.dtype == dtype
            np.testing.assert_array_equal(part[0], expected.astype(dtype))

            mail = np.stack([np.full(count, 10 * me + to) for to in range(n)]).astype(dtype)
            expected = np.stack([np.full(count, 10 * by + me) for by in range(n)]).astype(dtype)
            np.testing.assert_array_equal(comm.alltoall(mail), expected)


def check_pairs(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in [0, 1, 50_000]:
        mine = np.full(count, comm.rank, np.int32)
        theirs = np.full(count, -1, np.int32)
        if comm.rank % 2 == 0:
            comm.send(mine, right)
            comm.recv(theirs, left)
        else:
            comm.recv(theirs, left)
            comm.send(mine, right)
        np.testing.assert_array_equal(theirs, np.full(count, left, np.int32))


with hccl.init() as comm:
    assert comm.name == hccl.WORLD
    check_reductions(comm)
    check_data_movement(comm)
    if comm.size % 2 == 0:
        check_pairs(comm)
    comm.barrier()
print("all right")
