"""torch.distributed's API for fault tolerance, since PyTorch 2.14: the members of a group change."""

import threading

import pytest
import torch
import torch.distributed as dist
from conftest import TIMEOUT, kill_self, on_ranks
from test_failures import failure_of, meeting
from test_groups import members

pytestmark = pytest.mark.skipif(
    not hasattr(dist.distributed_c10d, "_reconfigure"), reason="PyTorch has it since 2.14"
)


def handles_of(ranks, rank, step):
    """Returns the handles of these ranks, exchanged through the store."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{step}/{rank}", dist.distributed_c10d._get_reconfigure_handle())
    return [store.get(f"{step}/{each}").decode() for each in ranks]


def reconfigure(uuid, ranks, rank, kind=list):
    dist.distributed_c10d._reconfigure(uuid, kind(handles_of(ranks, rank, uuid))).wait()


def test_ranks_die_and_come():
    """Rank 3 joins after rank 0 has died. The ranks are in the order of the handles."""
    dead = meeting(4)

    def work(rank):
        assert dist.distributed_c10d._supports_reconfigure()
        assert "reconfigure" in failure_of(dist.barrier)
        if rank < 3:
            reconfigure(1, [0, 1, 2], rank)
            assert (dist.get_rank(), dist.get_world_size(), members(None)) == (rank, 3, [0, 1, 2])
        dead.wait(TIMEOUT)
        if rank == 0:
            kill_self()
        if rank < 3:
            assert "rank 0" in failure_of(dist.barrier)
        order = [3, 1, 2]
        reconfigure(2, order, rank)
        assert (dist.get_rank(), dist.get_world_size()) == (order.index(rank), 3)
        number = torch.tensor([2**40 + rank])
        dist.all_reduce(number)
        assert number == 3 * 2**40 + 6
        pair = dist.new_group([0, 2])
        if rank != 1:
            assert members(pair) == [0, 2]
        reconfigure(3, [1, 2, 3], rank, set)
        assert members(None) == [0, 1, 2]

    on_ranks(4, work, killed=[0], enable_reconfigure=True)


def test_other_threads_ask_for_errors_meanwhile():
    def work(rank):
        reconfigure(1, [0, 1], rank)
        group, over = dist.group.WORLD, threading.Event()
        asked = []

        def ask():
            while not over.is_set():
                try:
                    asked.append(group._get_backend(torch.device("cpu")).get_error())
                except dist.DistBackendError:  # the group has no members at the moment
                    pass

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for each in threads:
            each.start()
        for uuid in range(2, 12):
            reconfigure(uuid, [0, 1], rank)
            assert members(None) == [0, 1]
        over.set()
        for each in threads:
            each.join()
        return len(asked)

    assert all(on_ranks(2, work, enable_reconfigure=True))


def test_wrong_handles_are_refused():
    def work(rank):
        reconfigure(1, [0, 1], rank)
        mine, other = handles_of([rank, 1 - rank], rank, "again")
        for uuid, handles, words in [
            (2, [other], "lack"),
            (3, [mine, mine], "twice"),
            (1, [mine, other], "not new"),
        ]:
            with pytest.raises(ValueError, match=words):
                dist.distributed_c10d._reconfigure(uuid, handles)
        assert members(None) == [0, 1]  # the group is as before

    on_ranks(2, work, enable_reconfigure=True)
