"""Forms of operations that only upper layers call, and the settings of a group."""

import datetime
import functools
import math
import operator
import os
import signal

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from conftest import on_ranks

CPU = torch.device("cpu")


def backend_of(group):
    return group._get_backend(CPU)


def test_coalesced_forms():
    def work(rank):
        world, own = dist.group.WORLD, rank + 1.0
        backend = backend_of(world)
        sums = [torch.full((3,), own), torch.full((2, 2), 10 * own)]
        dist.all_reduce_coalesced(sums)
        gathered = [[torch.zeros(1), torch.zeros(2)] for _ in range(2)]
        backend.allgather_coalesced(gathered, [torch.full((1,), own), torch.full((2,), -own)]).wait()
        inputs = [torch.full((1,), own), torch.full((2,), 10 * own)]
        into = functional.all_gather_into_tensor_coalesced(inputs, world)
        parts = functional.reduce_scatter_tensor_coalesced(
            [torch.tensor([own, 2 * own]), torch.tensor([4 * own, 0.0])], "sum", [0, 0], world
        )
        with dist._coalescing_manager(group=world):
            together = [torch.full((2,), own), torch.full((1,), 5 * own)]
            for each in together:
                dist.all_reduce(each)
        lists = [sums, gathered[0], gathered[1], into, parts, together]
        return [[each.flatten().tolist() for each in tensors] for tensors in lists]

    for rank, (sums, first, second, into, parts, together) in enumerate(on_ranks(2, work)):
        assert sums == [[3.0] * 3, [30.0] * 4]
        assert first == [[1.0], [-1.0, -1.0]] and second == [[2.0], [-2.0, -2.0]]
        assert into == [[1.0, 2.0], [10.0, 10.0, 20.0, 20.0]]
        assert parts == [[[3.0], [12.0]], [[6.0], [0.0]]][rank]
        assert together == [[3.0, 3.0], [15.0]]


def test_operations_of_a_coalescing_block_start_at_once_and_are_waited_for_together():
    def work(rank):
        world, other = dist.group.WORLD, 1 - rank
        sent, received = torch.full((300_000,), rank + 1.0), torch.zeros(300_000)
        root, lists = torch.full((2,), rank + 5.0), [torch.zeros(1), torch.zeros(1)]
        with dist._coalescing_manager(device=CPU):
            dist.recv(received, other)  # outside the block, each rank would wait for the other
            dist.send(sent, other)
            dist.broadcast(root, src=1)
            dist.all_gather(lists, torch.tensor([float(rank)]))
        total, moved = torch.tensor([rank + 1.0]), torch.zeros(2)
        with dist._coalescing_manager(device=CPU, async_ops=True) as block:
            dist.all_reduce(total)
            handle = dist.all_to_all_single(moved, torch.tensor([rank, rank + 10.0]), async_op=True)
        handle.wait()
        block.wait()
        future = block.works[0].get_future().wait()
        with dist._coalescing_manager(device=CPU):
            pass
        after = torch.tensor([1.0])
        dist.all_reduce(after)
        requests = dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, received, other), dist.P2POp(dist.isend, -sent, other)]
        )
        for request in requests:
            request.wait()
        with pytest.raises(RuntimeError, match="no operations of this group are being coalesced"):
            world._end_coalescing(CPU)
        lists = [each.item() for each in lists]
        return root.tolist(), lists, total.item(), moved.tolist(), len(future), after.item(), (
            len(requests), received.unique().tolist())

    for rank, result in enumerate(on_ranks(2, work)):
        root, lists, total, moved, outputs, after, (requests, received) = result
        assert root == [6.0, 6.0] and lists == [0.0, 1.0] and total == 3.0
        assert moved == [[0.0, 1.0], [10.0, 11.0]][rank]
        assert outputs == 2 and after == 2.0
        assert requests == 2 and received == [rank - 2.0]


def test_a_coalescing_block_fails_with_its_first_failure():
    def work(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with dist._coalescing_manager(device=CPU, async_ops=True) as block:
            dist.broadcast(torch.ones(3), src=1)
            dist.recv(torch.zeros(3), 1)
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            block.wait()
        assert block.works[0].is_completed() and not block.works[0].is_success()
        dist.destroy_process_group()

    on_ranks(2, work, killed=[1])


def test_several_tensors_in_one_list_count_as_several_ranks():
    """As with Gloo, each of the tensors gets the result."""
    reductions = {
        "SUM": sum,
        "PRODUCT": math.prod,
        "MIN": min,
        "MAX": max,
        "BAND": lambda numbers: functools.reduce(operator.and_, numbers),
        "BOR": lambda numbers: functools.reduce(operator.or_, numbers),
        "BXOR": lambda numbers: functools.reduce(operator.xor, numbers),
    }

    def work(rank):
        backend = backend_of(dist.group.WORLD)
        for name in reductions:
            options = dist.AllreduceOptions()
            options.reduceOp = getattr(dist.ReduceOp, name)
            pair = [torch.full((2, 3), 2 * rank + i)[:, ::2] for i in (5, 6)]
            future = backend.allreduce(pair, options).get_future()
            future.wait()
            expected = reductions[name](range(5, 9))
            for each in pair + future.value():
                assert each.tolist() == 2 * [[expected, expected]], name
        options.reduceOp = dist.ReduceOp.AVG
        with pytest.raises(RuntimeError, match="no average"):
            backend.allreduce(pair, options)

        for count in (1, 2, 3):
            inputs = [torch.tensor([count * rank + i]) for i in range(count)]
            outputs = [[torch.tensor([-1]) for _ in range(2 * count)] for _ in inputs]
            future = backend.allgather(outputs, inputs).get_future()
            future.wait()
            expected = [[torch.tensor([i]) for i in range(2 * count)] for _ in inputs]
            assert outputs == expected
            assert future.value() == (expected[0] if count == 1 else expected)

    on_ranks(2, work)


def test_settings_of_a_group():
    def work(rank):
        group = dist.new_group(timeout=datetime.timedelta(seconds=50))
        backend = backend_of(group)
        assert backend.name() == "hccl" and dist.get_backend(group) == "hccl"
        assert (backend.rank(), backend.size()) == (rank, 2)
        assert backend.options._timeout == datetime.timedelta(seconds=50)
        backend._set_default_timeout(datetime.timedelta(milliseconds=300))
        assert backend.options._timeout == datetime.timedelta(milliseconds=300)
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match="Timed out"):
                dist.barrier(group)
        dist.barrier()  # a barrier of the other group

    on_ranks(2, work)


def test_a_group_of_some_ranks_leaves_the_others_alone():
    def work(rank):
        group = dist.new_group([0, 2])
        if rank == 1:
            return group == dist.GroupMember.NON_GROUP_MEMBER
        tensor = torch.full((2,), float(rank + 1))
        dist.all_reduce(tensor, group=group)
        dist.broadcast(moved := torch.tensor(float(rank)), 2, group=group)  # 2 is a rank of the world
        return tensor.tolist(), moved.item()

    assert on_ranks(3, work) == [([4.0, 4.0], 2.0), True, ([4.0, 4.0], 2.0)]
