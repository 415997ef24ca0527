"""Non-blocking operations, reductions, messages, groups and splits as a process, compared with numpy."""

import functools

import hccl
import ml_dtypes
import numpy as np

BITS = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
TRUTHS = {"land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}


def check_reductions(comm):
    n, me = comm.size, comm.rank
    random = np.random.default_rng(5)  # the same on all ranks
    numbers = random.integers(0, 4, (n, 1000))
    for dtype in [np.int8, np.uint16, np.int64]:
        inputs = numbers.astype(dtype)
        for op, oracle in {**BITS, **TRUTHS}.items():
            terms = inputs != 0 if op in TRUTHS else inputs
            expected = functools.reduce(oracle, terms).astype(dtype)
            np.testing.assert_array_equal(comm.allreduce(inputs[me].copy(), op), expected, op)
    flags = numbers > 1
    for op, oracle in TRUTHS.items():
        got = comm.allreduce(flags[me].copy(), op)
        assert got.dtype == bool
        np.testing.assert_array_equal(got, functools.reduce(oracle, flags), op)

    for dtype in [np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]:
        inputs = numbers.astype(dtype)
        total = inputs.astype(np.float64).sum(axis=0)
        within = {"rtol": 0.07 if np.dtype(dtype).itemsize < 4 else 1e-6}
        mean = comm.allreduce(inputs[me].copy(), "avg").astype(np.float64)
        np.testing.assert_allclose(mean, total / n, **within)
        scaled = comm.allreduce(inputs[me].copy(), prescale=0.5, postscale=4.0)
        np.testing.assert_allclose(scaled.astype(np.float64), 2 * total, **within)
        part = comm.reduce_scatter(np.stack([inputs[me]] * n), "avg", postscale=2.0)
        np.testing.assert_allclose(part[0].astype(np.float64), 2 * total / n, **within)
        on_root = comm.reduce(inputs[me].copy(), root=n - 1, prescale=np.float32(2))
        if me == n - 1:
            np.testing.assert_allclose(on_root.astype(np.float64), 2 * total, **within)
        else:
            assert on_root is None


def check_handles(comm):
    """Starts all kinds at once, and waits for them in another order."""
    n, me = comm.size, comm.rank
    count = 10_007
    mine = np.arange(count, dtype=np.float32) + me
    all_inputs = [np.arange(count, dtype=np.float32) + rank for rank in range(n)]
    blocks = np.arange(3 * n, dtype=np.int64).reshape(n, 3) + 100 * me
    all_blocks = [np.arange(3 * n, dtype=np.int64).reshape(n, 3) + 100 * rank for rank in range(n)]
    handles = {
        "allreduce": comm.iallreduce(mine.copy(), out=hccl.empty(count, np.float32)),
        "in place": comm.iallreduce(mine.copy(), "max"),
        "reduce": comm.ireduce(mine.copy(), root=n - 1),
        "reduce_scatter": comm.ireduce_scatter(blocks),
        "broadcast": comm.ibroadcast(mine.copy(), root=n - 1),
        "allgather": comm.iallgather(blocks),
        "scatter": comm.iscatter(blocks if me == 0 else None, out=np.empty((1, 3), np.int64)),
        "alltoall": comm.ialltoall(blocks),
        "alltoallv": comm.ialltoallv(blocks[: n - 1], [1] * (n - 1) + [0], [int(me < n - 1)] * n),
        "barrier": comm.ibarrier(),
    }
    comm.barrier()  # runs after all of them
    assert all(handle.done() for handle in handles.values())
    got = {name: handle.wait(timeout=60) for name, handle in reversed(handles.items())}
    np.testing.assert_array_equal(got["allreduce"], sum(all_inputs))
    np.testing.assert_array_equal(got["in place"], all_inputs[-1])
    if me == n - 1:
        np.testing.assert_array_equal(got["reduce"], sum(all_inputs))
    else:
        assert got["reduce"] is None
    np.testing.assert_array_equal(got["reduce_scatter"], [sum(all_blocks)[me]])
    np.testing.assert_array_equal(got["broadcast"], all_inputs[-1])
    np.testing.assert_array_equal(got["allgather"], np.concatenate(all_blocks))
    np.testing.assert_array_equal(got["scatter"], [all_blocks[0][me]])
    np.testing.assert_array_equal(got["alltoall"], [block[me] for block in all_blocks])
    rows = [block[me] for block in all_blocks] if me < n - 1 else np.empty((0, 3))
    np.testing.assert_array_equal(got["alltoallv"], rows)
    assert got["barrier"] is None


def check_rows(comm):
    """Rank i sends 2 i + j rows of two numbers to rank j."""
    n, me = comm.size, comm.rank
    parts = [[np.full((2 * i + j, 2), 10 * i + j, np.int16) for j in range(n)] for i in range(n)]
    counts = [2 * me + j for j in range(n)]
    expected = np.concatenate([parts[i][me] for i in range(n)])
    sent = np.concatenate(parts[me])
    np.testing.assert_array_equal(comm.alltoallv(sent, counts), expected)
    out = np.empty_like(expected)
    assert comm.alltoallv(sent, np.array(counts), [2 * i + me for i in range(n)], out) is out
    np.testing.assert_array_equal(out, expected)


def check_messages(comm):
    n, me = comm.size, comm.rank
    for count, tags in [(0, [7, -3]), (1, [8, 2**31 - 1]), (200_000, [9, 0])]:
        # Sends two messages to every rank, this one included. Receives by tag take the second message first.
        sends = []
        for rank in range(n):
            for tag in tags:
                data = np.full(count, 100 * me + 10 * rank + tag, np.int64)
                sends.append(comm.isend(data, rank, tag))  # the handle keeps the array
                del data
        for tag in reversed(tags):
            seen = []
            for _ in range(n):
                handle = comm.irecv(np.empty(count, np.int64), hccl.ANY_RANK, tag)
                got = handle.wait(timeout=60)
                expected = 100 * handle.source + 10 * me + tag
                np.testing.assert_array_equal(got, np.full(count, expected))
                seen.append(handle.source)
            assert sorted(seen) == list(range(n))
        for handle in sends:
            assert handle.wait(timeout=60) is None


def check_groups(comm):
    n, me = comm.size, comm.rank
    right, left = (me + 1) % n, (me - 1) % n
    mine, theirs = np.full(100_000, me), np.empty(100_000, int)
    total, most = np.full(5, me), np.full(7, me)
    with comm.group():  # all ranks send first, which only a group allows
        comm.send(mine, right)
        assert comm.recv(theirs, left) is theirs
        comm.allreduce(total)
        comm.allreduce(most, "max")
        assert total[0] == me  # has not run yet
    assert (theirs == left).all()
    assert (total == n * (n - 1) // 2).all() and (most == n - 1).all()

    total[:] = most[:] = me
    with comm.igroup() as handle:
        comm.allreduce(total)
        comm.broadcast(most, root=n - 1)
    handle.wait(timeout=60)
    assert handle.done()
    assert (total == n * (n - 1) // 2).all() and (most == n - 1).all()


def check_splits(comm):
    n, me = comm.size, comm.rank
    for _ in range(2):  # the groups of the first turn still exist
        half = comm.split(color=me % 2, key=-me)
        members = sorted(range(me % 2, n, 2), reverse=True)
        assert (half.size, half.rank) == (len(members), members.index(me))
        assert half.allgather(np.array([me])).tolist() == members
        again = half.split(0 if half.rank == 0 else None)
        assert (again is None) == (half.rank != 0)
        if again is not None:
            assert (again.size, again.rank) == (1, 0)
            again.destroy()
        beside = half.iallreduce(np.array([me]))
        assert comm.allreduce(np.array([me]))[0] == n * (n - 1) // 2
        assert beside.wait()[0] == sum(members)
    return half


with hccl.init() as comm:
    check_reductions(comm)
    check_handles(comm)
    check_rows(comm)
    check_messages(comm)
    check_groups(comm)
    half = check_splits(comm)
    assert comm.timeout is None or comm.timeout > 0
    comm.timeout = 1.5
    assert comm.timeout == 1.5
    comm.timeout = None
    assert comm.timeout is None
    comm.barrier()
try:
    half.barrier()
except hccl.HcclError as error:
    assert "was destroyed" in str(error)  # it ended with the world
else:
    raise AssertionError("a part of a world that has ended can be used")
print("all right")
