"""Process groups: how ranks join them, what they cost, and how they affect each other."""

import datetime
import os
import resource
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from conftest import TIMEOUT, in_both_forms, kill_self, on_ranks
from hccl.torch import _module
from test_failures import failure_of, meeting


def members(group):
    """Returns the global ranks of the group's members. Each member sends its own."""
    got = [torch.zeros(1) for _ in range(dist.get_world_size(group))]
    dist.all_gather(got, torch.tensor([float(dist.get_rank())]), group=group)
    return [int(rank) for rank in got]


def threads():
    return len(os.listdir("/proc/self/task"))


def test_groups_need_no_store_and_no_threads():
    def work(rank):
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        keys, before = store.num_keys(), threads()
        groups = [dist.new_group() for _ in range(20)]
        for group in groups:
            assert members(group) == [0, 1]
        end = time.monotonic() + TIMEOUT
        while threads() > before and time.monotonic() < end:  # until the threads of joining have ended
            time.sleep(0.01)
        return store.num_keys() - keys, threads() - before

    for keys, more in on_ranks(2, work):
        assert keys == 0 and more <= 0


def test_hundreds_of_groups():
    """Unused groups open no descriptors."""

    def work(rank):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
        dist.barrier()
        before = len(os.listdir("/proc/self/fd"))
        groups = [dist.new_group() for _ in range(300)]
        assert len(os.listdir("/proc/self/fd")) == before
        dist.barrier()  # the first rank that uses a group opens it on all ranks
        for group in groups[::60]:
            assert members(group) == [0, 1, 2, 3]

    on_ranks(4, work)


def test_groups_of_any_ranks():
    def work(rank):
        if rank in [1, 3]:  # the other ranks do not call
            local = dist.new_group([1, 3], use_local_synchronization=True)
            assert members(local) == [1, 3]
            peer = torch.tensor([rank])
            if rank == 1:
                dist.send(peer, 3, group=local)
            else:
                dist.recv(peer, 1, group=local)
            assert peer == 1
        seen = 0
        for ranks in [[0, 2], [1], [3, 1, 0], [0, 1, 2, 3], [0, 2]]:
            group = dist.new_group(ranks, sort_ranks=False)
            if rank in ranks:
                assert members(group) == ranks
                seen += 1
        return seen

    assert on_ranks(4, work) == [4, 3, 3, 2]


@pytest.mark.parametrize("default", ["hccl", "gloo"])  # groups use the default group, or the store
def test_names_of_torch_that_differ_between_ranks(default):
    """PyTorch 2.14 counts the groups that only their members make (use_local_synchronization), and puts the count into
    names."""

    def work(rank):
        def new(ranks, **options):
            return dist.new_group(ranks, backend="hccl", **options)

        def check_groups():
            dist.distributed_c10d._world.group_count += 10 * rank + 1
            groups = [new([0, 1, 2]), new([2, 1, 0], sort_ranks=False), new([0, 1, 2])]
            tensors = [torch.full((4,), float(i)) for i in range(3)]
            # Operations of different groups may come in any order.
            order = [0, 1, 2] if rank == 0 else [2, 0, 1]
            works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order]
            for each in works:
                each.wait()
            assert [tensor[0] for tensor in tensors] == [0, 3, 6]
            assert [members(group) for group in groups] == [[0, 1, 2], [2, 1, 0], [0, 1, 2]]
            if rank != 2:
                first = new([0, 1], use_local_synchronization=True)
            pairs = [new([1, 2]), new([0, 1]), new([0, 2])]
            assert [members(pair) for pair in pairs if pair is not dist.GroupMember.NON_GROUP_MEMBER] == [
                ranks for ranks in ([1, 2], [0, 1], [0, 2]) if rank in ranks
            ]
            if rank != 2:
                assert members(first) == [0, 1]
            dist.destroy_process_group(groups[0])
            again = new([0, 1, 2])
            assert members(again) == members(groups[2]) == [0, 1, 2]
            groups[1].abort()
            assert members(again) == [0, 1, 2]

        check_groups()
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group(default, store=dist.PrefixStore("again", store), rank=rank, world_size=3)
        check_groups()

    on_ranks(3, work, backend=default)


def test_errors_have_the_name_that_torch_has_on_a_member():
    def work(rank):
        dist.distributed_c10d._world.group_count += 10 * rank
        group = dist.new_group()
        return group.group_name, failure_of(lambda: dist.all_reduce(torch.ones(1 + rank), group=group))

    results = on_ranks(2, work)
    assert [name for name, _ in results] == ["1", "11"]
    for _, text in results:
        assert "_1: " in text or "_11: " in text, text


def test_a_group_does_not_wait_behind_another():
    reduced = meeting(2)

    def work(rank):
        one, other = dist.new_group(), dist.new_group()
        tensor = torch.ones(4)
        if rank == 0:
            waits = dist.all_reduce(tensor, group=one, async_op=True)
        assert members(other) == [0, 1]
        if rank == 0:
            assert not waits.is_completed()
        reduced.wait(TIMEOUT)
        if rank == 1:
            waits = dist.all_reduce(tensor, group=one, async_op=True)
        waits.wait()
        assert tensor[0] == 2

    on_ranks(2, work)


def test_groups_outlive_the_default_group():
    def work(rank):
        group = dist.new_group()
        dist.distributed_c10d._get_default_group().shutdown()
        assert members(group) == [0, 1]
        assert members(dist.new_group()) == [0, 1]  # the group's ranks join through the store
        dist.destroy_process_group()

    on_ranks(2, work)


def test_a_member_dies_before_the_first_operation():
    def work(rank):
        group = dist.new_group()
        if rank == 1:
            kill_self()
        text = failure_of(lambda: dist.all_reduce(torch.ones(4), group=group))
        dist.destroy_process_group()
        return text

    text = on_ranks(2, work, killed=[1])[0]
    assert "rank 1" in text and "died" in text


@pytest.mark.parametrize("dead", [0, 3])  # rank 0's process has the root
def test_groups_go_on_without_a_rank_that_is_no_member(dead):
    def work(rank):
        living = [each for each in range(4) if each != dead]
        group = dist.new_group(living)
        if rank != dead:
            assert members(group) == living
        dist.barrier()
        if rank == dead:
            kill_self()
        assert f"rank {dead}" in failure_of(dist.barrier)
        assert members(group) == living
        assert members(dist.new_group(living, use_local_synchronization=True)) == living
        dist.destroy_process_group()

    on_ranks(4, work, killed=[dead])


def test_a_failed_group_leaves_the_others_alone():
    def work(rank):
        group, other = dist.new_group(), dist.new_group()
        group.abort()
        assert "abort" in failure_of(lambda: dist.barrier(group))
        assert members(other) == members(dist.new_group()) == members(None) == [0, 1]

    on_ranks(2, work)


def test_a_member_that_does_not_come_is_named_after_the_groups_time():
    over = meeting(2)

    def work(rank):
        text = None
        if rank == 0:
            time_left = datetime.timedelta(seconds=0.3)
            text = failure_of(lambda: dist.new_group([0, 1], timeout=time_left))
        over.wait(TIMEOUT)
        return text

    assert "ranks that did not come: 1" in on_ranks(2, work)[0]


def test_ctrl_c_ends_the_wait_for_a_member():
    over = meeting(2)

    def work(rank):
        if rank == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                dist.new_group()
        over.wait(TIMEOUT)
        dist.barrier()

    on_ranks(2, work)


@in_both_forms
def test_a_group_beside_a_default_group_of_gloo():
    def gloo(rank):
        return members(dist.new_group(backend="hccl"))

    assert on_ranks(2, gloo, backend="gloo") == [[0, 1]] * 2


def test_a_default_group_in_a_wrapper():
    def wrapped(rank):
        assert _module.backend_of(dist.group.WORLD) is not None
        return members(dist.new_group())

    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        assert on_ranks(2, wrapped) == [[0, 1]] * 2
    finally:
        dist.set_debug_level(level)
