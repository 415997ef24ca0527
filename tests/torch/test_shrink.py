"""torch.distributed.shrink_group: a program goes on after ranks have died."""

import inspect
import os
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from conftest import HERE, TIMEOUT, kill_self, on_ranks
from test_failures import LIMIT, failure_of, meeting
from test_groups import members

SECONDS = 60  # far more than a loss takes, far less than the group's timeout and HCCL_CONNECT_TIMEOUT


def ranks_of(group=None):
    """Returns torch's global ranks of a group; this rank in the group; and the global ranks as the members send
    them."""
    return dist.get_process_group_ranks(group), dist.get_rank(group), members(group)


def until_failure(group=None):
    while True:
        dist.barrier(group)


@pytest.mark.parametrize("dead", [[0], [2], [1, 0], [3, 2]])
def test_programs_go_on_without_dead_ranks(dead):
    """Real programs; the store dies with rank 0."""
    port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    job = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    program = [sys.executable, HERE / "ranks" / "shrinks.py", *map(str, dead)]
    ranks = [
        subprocess.Popen(
            program,
            env={**os.environ, **job, "OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    try:
        for rank, process in enumerate(ranks):
            output, errors = process.communicate(timeout=TIMEOUT)
            if rank in dead:
                continue
            assert process.returncode == 0, errors
            assert f"gone on as {rank}\n" in output, errors
            assert 0 <= float(output.split()[-1]) < SECONDS, output
    finally:
        for process in ranks:
            process.kill()


def test_ranks_whose_death_the_caller_does_not_know_are_left_out():
    def work(rank):
        until = meeting_of_the_dying if rank in (1, 3) else None
        if until:
            until.wait(TIMEOUT)
            kill_self()
        failure_of(until_failure)
        for _ in range(2):  # one of the two ranks may die after the first call
            dist.shrink_group([1] if dist.get_world_size() == 5 else [])
            try:
                dist.barrier()
                break
            except dist.DistBackendError:
                pass
        return dist.get_world_size(), members(None), dist.get_rank()

    meeting_of_the_dying = meeting(2)
    results = on_ranks(5, work, killed=[1, 3])
    assert [results[rank] for rank in (0, 2, 4)] == [(3, [0, 1, 2], rank) for rank in range(3)]


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 1, 2]])
def test_a_group_shrinks_in_the_global_ranks(order):
    """The group's ranks differ from the default group's. Later the default group makes a group, and shrinks."""
    dead = 2

    def work(rank):
        group = dist.new_group(order, sort_ranks=False)
        dist.barrier()
        if rank == dead:
            kill_self()
        failure_of(until_failure)
        left = [each for each in order if each != dead]
        facts = None
        if rank in left:
            failure_of(lambda: until_failure(group))
            smaller = dist.shrink_group([order.index(dead)], group)
            number = torch.tensor([rank])
            dist.broadcast(number, left[1], group=smaller)
            assert number == left[1]
            facts = ranks_of(smaller)
            assert dist.get_world_size() == 4
        assert members(dist.new_group([0, 1, 3])) == [0, 1, 3]
        dist.shrink_group([dead])
        return facts, members(None)

    results = on_ranks(4, work, killed=[dead])
    left = [each for each in order if each != dead]
    for rank in (0, 1, 3):
        facts, everyone = results[rank]
        assert facts == (None if rank == 0 else (left, left.index(rank), left))
        assert everyone == [0, 1, 2]


def test_an_aborted_group_shrinks_while_an_operation_waits_for_an_excluded_rank():
    over = meeting(4)

    def work(rank):
        if rank != 2:
            old = dist.group.WORLD
            waits = dist.all_reduce(torch.ones(4), async_op=True)
            begin = time.monotonic()
            if rank == 1:
                old.abort()
            smaller = dist.shrink_group([2], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
            seconds = time.monotonic() - begin
            assert "abort" in failure_of(waits.wait)
            assert smaller is dist.group.WORLD
            assert ranks_of() == ([0, 1, 2], [0, 1, None, 2][rank], [0, 1, 2])
            assert seconds < SECONDS
        over.wait(TIMEOUT)
        if rank == 2:
            failure_of(dist.barrier)
            dist.destroy_process_group()

    on_ranks(4, work)


def test_an_operation_that_runs_does_not_hold_up_the_end_of_the_old_group():
    over = meeting(3)

    def work(rank):
        if rank != 1:
            waits = dist.all_reduce(torch.ones(4), async_op=True)
            begin = time.monotonic()
            dist.shrink_group([1])
            assert time.monotonic() - begin < SECONDS
            failure_of(waits.wait)
            assert members(None) == [0, 1]
        over.wait(TIMEOUT)
        if rank == 1:
            dist.destroy_process_group()

    on_ranks(3, work)


def test_the_smaller_group_has_the_parents_time_or_that_of_its_options():
    def work(rank):
        own = dist.group.WORLD._get_backend(torch.device("cpu")).options
        assert own._timeout == LIMIT
        times = []
        for options in (None, type(own)("hccl", 10 * LIMIT)):
            group = dist.shrink_group([], dist.new_group(timeout=LIMIT), pg_options=options)
            times.append(group._get_backend(torch.device("cpu")).options._timeout)
        return times

    assert on_ranks(2, work, timeout=LIMIT) == [[LIMIT, 10 * LIMIT]] * 2


def test_lists_that_torch_refuses_and_lists_that_differ():
    def work(rank):
        for ranks, error, words in [
            ((1,), TypeError, "must be a list"),
            (["1"], TypeError, "must be integers"),
            ([7], ValueError, "out of bounds"),
            ([2, 2], ValueError, "Duplicate"),
            ([0, 1, 2], ValueError, "exclude all"),
            ([rank], RuntimeError, "in the exclusion list"),
        ]:
            with pytest.raises(error, match=words):
                dist.shrink_group(ranks)
        text = failure_of(lambda: dist.shrink_group([[2], [], []][rank]))
        assert members(None) == [0, 1, 2]  # the group is as before
        return text

    for text in on_ranks(3, work):
        assert "0-1" in text and "0-2" in text, text


def test_torchs_own_function_gives_no_wrong_numbers():
    """Programs may have imported torch's function before this package. A later torch may lack functions that it
    needs."""
    torchs = inspect.unwrap(dist.shrink_group)
    dying = meeting(2)

    def work(rank):
        group = dist.new_group([1, 2, 3, 4])
        dist.barrier()
        if rank in (2, 4):
            dying.wait(TIMEOUT)
            kill_self()
        failure_of(until_failure)
        if rank in (1, 3):
            with pytest.raises(RuntimeError, match="global ranks for ranks of the group"):
                torchs([1], group)
        text = failure_of(lambda: torchs([2]))
        assert text.splitlines()[0].endswith("Exclude them, too: 4"), text
        torchs([2, 4])
        return dist.get_rank(), members(None)

    results = on_ranks(5, work, killed=[2, 4])
    assert [results[rank] for rank in (0, 1, 3)] == [(rank, [0, 1, 2]) for rank in range(3)]
