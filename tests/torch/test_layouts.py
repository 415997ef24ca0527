"""Tensors that are not contiguous, empty or sparse, and sizes that differ."""

import pytest
import torch
import torch.distributed as dist
from conftest import in_both_forms, on_ranks

SHAPE = (2, 4, 3, 5)


def permuted(fill):
    return torch.full((5, 3, 4, 2), fill).permute(3, 2, 1, 0)


def channels_last(fill):
    return torch.full(SHAPE, fill).to(memory_format=torch.channels_last)


def every_other(fill):
    return torch.full((4, 4, 3, 10), fill)[::2, :, :, ::2]


def expanded(fill):
    return torch.full((1, 4, 1, 5), fill).expand(SHAPE)


def dense(fill):
    return torch.full(SHAPE, fill)


LAYOUTS = [permuted, channels_last, every_other, expanded, dense]


@in_both_forms
@pytest.mark.parametrize("make", LAYOUTS)
def test_every_collective_takes_it(make):
    def same(tensor, value):
        assert tensor.shape == SHAPE and (tensor == value).all(), tensor

    def work(rank):
        own = float(rank + 1)
        tensor = make(own)
        dist.all_reduce(tensor)
        same(tensor, 3)
        tensor = make(own)
        dist.reduce(tensor, 0)
        same(tensor, 3 if rank == 0 else 2)
        tensor = make(own)
        dist.broadcast(tensor, 1)
        same(tensor, 2)
        # An expanded output would have no memory for different values, so outputs have memory of their own.
        room = dense if make is expanded else make
        parts = [room(0.0), room(0.0)]
        dist.all_gather(parts, make(own))
        same(parts[0], 1), same(parts[1], 2)
        dist.gather(make(own + 4), parts if rank == 1 else None, 1)
        same(parts[1], 6 if rank == 1 else 2)
        tensor = room(0.0)
        dist.scatter(tensor, [make(7.0), make(8.0)] if rank == 0 else None)
        same(tensor, 7 + rank)
        dist.reduce_scatter(tensor, [make(own), make(own * 10)])
        same(tensor, [3, 30][rank])
        dist.all_to_all(parts, [make(own), make(own * 10)])
        same(parts[0], [1, 10][rank]), same(parts[1], [2, 20][rank])
        if rank == 0:
            dist.send(make(4.0), 1)
        else:
            dist.recv(tensor, 0)
            same(tensor, 4)

    on_ranks(2, work)


@in_both_forms
def test_what_lies_between_the_elements_stays():
    def work(rank):
        memory = torch.zeros(4, 6)
        memory[1::2, 1:5] = rank + 1
        dist.all_reduce(memory[1::2, 1:5])
        return memory.tolist()

    empty, full = [0.0] * 6, [0.0, 3.0, 3.0, 3.0, 3.0, 0.0]
    assert on_ranks(2, work) == 2 * [[empty, full, empty, full]]


@in_both_forms
def test_no_elements():
    def work(rank):
        none = torch.empty(0)
        dist.all_reduce(none)
        dist.broadcast(none, 0)
        dist.all_gather([torch.empty(0), torch.empty(0)], none)
        dist.all_to_all_single(none, torch.empty(0))
        dist.reduce_scatter_single(none, torch.empty(0))
        scalar = torch.tensor(2.0)
        dist.all_reduce(scalar)
        return scalar.item()

    assert on_ranks(2, work) == [4.0, 4.0]


@in_both_forms
def test_sizes_that_differ_between_ranks():
    def work(rank):
        own = torch.full((rank + 1, 2), float(rank))
        parts = [torch.zeros(1, 2), torch.zeros(2, 2)]
        dist.all_gather(parts, own)
        gathered = torch.cat(parts).flatten().tolist()
        given = [torch.full((rank + 1,), 10.0 * rank), torch.full((3,), 10.0 * rank + 1)]
        taken = [torch.zeros(1), torch.zeros(2)] if rank == 0 else [torch.zeros(3)] * 2
        taken = [each.clone() for each in taken]
        dist.all_to_all(taken, given)
        part = torch.zeros(rank + 1)
        dist.reduce_scatter(part, [torch.ones(1), torch.ones(2) * 2])
        return gathered, torch.cat(taken).tolist(), part.tolist()

    gathered = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert on_ranks(2, work) == [
        (gathered, [0.0, 10.0, 10.0], [2.0]),
        (gathered, [1.0, 1.0, 1.0, 11.0, 11.0, 11.0], [4.0, 4.0]),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_sparse_sum(dtype):
    def work(rank):
        indices = torch.tensor([[0, 2, 2], [1, rank, rank]])  # one index occurs twice: not coalesced
        values = torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=dtype) * (rank + 1)
        tensor = torch.sparse_coo_tensor(indices, values, (4, 3, 2), check_invariants=False)
        expected = torch.zeros(4, 3, 2, dtype=dtype)
        expected[0, 1] = torch.tensor([3, 6], dtype=dtype)
        expected[2, 0] = torch.tensor([8, 10], dtype=dtype)
        expected[2, 1] = torch.tensor([16, 20], dtype=dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.to_dense(), expected), tensor
        none = torch.sparse_coo_tensor(torch.empty(2, 0), torch.empty(0, 2), (4, 3, 2))
        dist.all_reduce(none)
        assert none.to_dense().abs().sum() == 0

    on_ranks(2, work)


def test_sparse_tensors_of_one_list_count_as_several_ranks():
    def work(rank):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        pair = [torch.sparse_coo_tensor([[0, rank]], [1.0, 2.0 + i], (3,)) for i in range(2)]
        future = backend.allreduce(pair).get_future()
        future.wait()
        return [each.to_dense().tolist() for each in pair + future.value()]

    assert on_ranks(2, work) == 2 * [4 * [[9.0, 5.0, 0.0]]]


def test_sparse_sizes_that_differ_are_an_error_on_all_ranks():
    def work(rank):
        tensor = torch.sparse_coo_tensor([[0]], [1.0], (4 + rank,))
        with pytest.raises(RuntimeError, match="tensor sizes differ"):
            dist.all_reduce(tensor)

    on_ranks(2, work)


@in_both_forms
def test_tensors_that_share_memory():
    def work(rank):
        own = rank + 1.0
        tied, all_of, column = torch.tensor([own]), torch.full((3,), own), torch.full((2, 2), own)
        # Only one rank's tensors share memory, but the calls of the ranks still agree.
        dist.all_reduce_coalesced([tied, tied if rank == 0 else torch.tensor([own])])
        dist.all_reduce_coalesced([all_of, all_of[1:], column[:, 0], column[:, 1]])
        # An earlier operation writes what later ones read.
        earlier = dist.all_reduce(queued := torch.tensor([own]), async_op=True)
        with dist._coalescing_manager(group=dist.group.WORLD, async_ops=True) as later:
            for each in (queued, queued.data):
                dist.all_reduce(each)
        earlier.wait(), later.wait()
        # The second operation reads what the first one writes.
        memory, second = torch.tensor([own, 0.0]), torch.zeros(2)
        with dist._coalescing_manager(group=dist.group.WORLD):
            dist.all_gather_into_tensor(memory, torch.tensor([7.0]))
            dist.all_gather_into_tensor(second, memory[:1])
        into = torch.zeros(2, 2)
        dist.all_gather([into[:, 0], into[:, 1]], torch.full((2,), own))
        block = torch.full((2,), own)
        dist.all_gather_into_tensor(block, block[rank : rank + 1])
        scattered = torch.tensor([own, own])
        dist.reduce_scatter_single(scattered[rank : rank + 1], scattered)
        return [each.tolist() for each in (tied, all_of, column, queued, memory, second, into, block, scattered)]

    for rank, found in enumerate(on_ranks(2, work)):
        scattered = [[3.0, 1.0], [2.0, 3.0]][rank]
        assert found == [
            [3.0], [3.0] * 3, [[3.0, 3.0]] * 2, [6.0], [7.0, 7.0], [1.0, 2.0], [[1.0, 2.0]] * 2, [1.0, 2.0],
            scattered,
        ]


@in_both_forms
@pytest.mark.parametrize("case", ["expanded", "twice", "partly", "in the wrong place"])
def test_outputs_that_share_elements_are_refused(case):
    def work(rank):
        memory = torch.zeros(6)
        outputs = {
            "expanded": [torch.zeros(1).expand(2), torch.zeros(2)],
            "twice": [memory[:2], memory[:2]],
            "partly": [memory[:2], memory[1:3]],
            "in the wrong place": memory[:4],
        }[case]
        with pytest.raises(RuntimeError, match="share|expanded|overlaps"):
            if isinstance(outputs, list):
                dist.all_gather(outputs, torch.ones(2))
            else:
                dist.all_gather_into_tensor(outputs, memory[1:3])
        if isinstance(outputs, list):  # a refused call does not count in the order
            ones = torch.ones(1)
            dist.all_reduce(ones)
            return ones.item()
        return 2.0

    assert on_ranks(2, work) == [2.0, 2.0]
