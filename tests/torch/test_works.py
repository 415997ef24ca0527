"""Asynchronous operations, futures, messages, order."""

import datetime
import threading

import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks
from hccl.torch import _module


def test_order_of_operations_that_nobody_waits_for():
    def work(rank):
        tensor = torch.ones(1000)
        for _ in range(50):
            dist.all_reduce(tensor, async_op=True)
            tensors = [torch.zeros(1000), torch.zeros(1000)]
            dist.all_gather(tensors, tensor)  # runs after the sum, on any thread
            assert (tensors[0] == tensor).all() and (tensors[1] == tensor).all()
            tensor /= 2
        return tensor.unique().tolist()

    assert on_ranks(2, work) == [[1.0], [1.0]]


def test_the_tensors_of_a_dropped_work_live_on():
    def work(rank):
        futures = []
        for i in range(100):
            tensor = torch.full((10_000,), float(i))
            futures.append(dist.all_reduce(tensor, async_op=True).get_future())
            del tensor
        return [future.wait()[0][0].item() for future in futures]

    assert on_ranks(2, work) == 2 * [[2.0 * i for i in range(100)]]


def test_futures_and_their_callbacks():
    def work(rank):
        def again(future):
            (tensor,) = future.value()
            return dist.all_reduce(tensor, async_op=True).get_future()

        future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        assert future.then(lambda f: f.value()[0] * 10).wait().tolist() == [20.0] * 3
        chained = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again)
        assert chained.wait().wait()[0].tolist() == [4.0] * 3
        done = dist.barrier(async_op=True)
        done.wait()
        assert done.get_future().done() and done.is_completed() and done.is_success()

    on_ranks(2, work)


def test_a_callback_may_end_the_group():
    def work(rank):
        group = dist.new_group()
        tensors = [torch.ones(3), torch.ones(3)]
        if rank == 1:  # delays rank 1, so rank 0's callback runs in the background
            dist.recv(torch.zeros(1), 0)
        works = [dist.all_reduce(each, group=group, async_op=True) for each in tensors]
        backend = group._get_backend(torch.device("cpu"))
        ended = works[0].get_future().then(lambda _: backend.shutdown())
        if rank == 0:
            dist.send(torch.ones(1), 1)
        ended.wait()
        for each in works:
            each.wait()
        with pytest.raises(dist.DistBackendError, match="has been shut down"):
            dist.all_reduce(tensors[0], group=group)
        return [tensor.unique().tolist() for tensor in tensors]

    assert on_ranks(2, work) == 2 * [[[2.0], [2.0]]]


def test_a_failure_reaches_the_future():
    def work(rank):
        work = dist.all_reduce(torch.ones(3 + rank), async_op=True)
        with pytest.raises(RuntimeError, match="all_?reduce"):
            work.get_future().wait()
        with pytest.raises(dist.DistBackendError):
            work.wait()
        dist.destroy_process_group()

    on_ranks(2, work)


def test_a_sum_in_place_takes_its_turn():
    def work(rank):
        backend = _module.backend_of(dist.group.WORLD)
        tensor = torch.ones(1000)
        for _ in range(50):
            dist.all_reduce(tensor, async_op=True)
            backend.sum_in_place(tensor)
            tensor /= 4
        across = torch.arange(6.0).reshape(2, 3).t()
        backend.sum_in_place(across)
        assert across.tolist() == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
        with pytest.raises(Exception, match="(?i)dense|layout"):
            backend.sum_in_place(torch.ones(3).to_sparse())
        with pytest.raises(dist.DistBackendError, match="all_?reduce"):
            backend.sum_in_place(torch.ones(3 + rank))
        dist.destroy_process_group()
        return tensor.unique().tolist()

    assert on_ranks(2, work) == [[1.0], [1.0]]


def test_several_threads():
    def work(rank):
        groups = [dist.new_group() for _ in range(4)]
        results = [None] * 4

        def thread(i):
            tensor = torch.full((100,), float(i))
            for _ in range(20):
                dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=groups[i])
            results[i] = tensor[0].item()

        threads = [threading.Thread(target=thread, args=(i,)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return results

    assert on_ranks(2, work) == 2 * [[0.0, 1.0, 2.0, 3.0]]


@pytest.mark.parametrize("count", [1, 100_000])
def test_messages(count):
    def work(rank):
        peer = 1 - rank
        sends = [
            dist.isend(torch.full((count,), 10.0 * rank + tag), peer, tag=tag) for tag in range(4)
        ]
        into = [torch.zeros(count) for _ in range(4)]
        receives = [dist.irecv(into[tag], peer, tag=tag) for tag in reversed(range(4))]
        mixed = torch.ones(5)
        dist.all_reduce(mixed)  # at the same time as the messages
        for each in [*sends, *receives]:
            each.wait()
        if rank == 0:
            dist.send(torch.full((count,), 7.0), peer)
        else:
            source = dist.recv(any_source := torch.zeros(count))
            assert source == 0 and (any_source == 7).all()
        return [tensor.unique().tolist() for tensor in into]

    assert on_ranks(2, work) == [
        [[10.0], [11.0], [12.0], [13.0]],
        [[0.0], [1.0], [2.0], [3.0]],
    ]


def test_a_message_of_another_size_fails_and_the_group_goes_on():
    def work(rank):
        with pytest.raises(dist.DistBackendError, match="16.*12|12.*16"):
            if rank == 0:
                dist.isend(torch.zeros(4), 1).wait()
                raise dist.DistBackendError("sent eagerly: 16 bytes, not 12")
            dist.recv(torch.zeros(3), 0)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return tensor.item()

    assert on_ranks(2, work) == [2.0, 2.0]


def test_waiting_for_a_limited_time():
    def work(rank):
        if rank == 0:
            waited = dist.barrier(async_op=True)
            with pytest.raises(dist.DistBackendError, match="Timed out"):
                waited.wait(datetime.timedelta(milliseconds=50))
            dist.send(torch.ones(1), 1)
            waited.wait()
        else:
            dist.recv(torch.zeros(1), 0)
            dist.barrier()

    on_ranks(2, work)
