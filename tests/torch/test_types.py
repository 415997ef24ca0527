"""Types and reductions, compared with sums of Python's own numbers."""

import functools
import math
import operator

import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks

INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]
FLOATS = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]
OPS = {
    "SUM": sum,
    "PRODUCT": math.prod,
    "MIN": min,
    "MAX": max,
    "AVG": lambda numbers: sum(numbers) / len(numbers),
    "BAND": functools.partial(functools.reduce, operator.and_),
    "BOR": functools.partial(functools.reduce, operator.or_),
    "BXOR": functools.partial(functools.reduce, operator.xor),
}
# Small numbers: every type holds them exactly, and their sums, products and halves, too.
INPUTS = {2: [[0, 1, 2, 2, 1, 2, 0], [1, 1, 2, 0, 2, 2, 0]]}
INPUTS[4] = INPUTS[2] + [[2, 1, 0, 1, 1, 1, 1], [1, 1, 2, 1, 0, 1, 1]]


def numbers(tensor):
    return tensor.to(torch.float64).tolist()


def reduced_everywhere(dtype, op, size):
    def work(rank):
        kind = getattr(dist.ReduceOp, op)
        own = torch.tensor(INPUTS[size][rank], dtype=torch.float64).to(dtype)
        everywhere = own.clone()
        dist.all_reduce(everywhere, op=kind)
        at_root = own.clone()
        dist.reduce(at_root, 1, op=kind)
        part = torch.zeros(7, dtype=torch.float64).to(dtype)
        dist.reduce_scatter(part, [own] * size, op=kind)
        return numbers(everywhere), numbers(at_root), numbers(part)

    expected = [float(OPS[op](column)) for column in zip(*INPUTS[size])]
    for rank, (everywhere, at_root, part) in enumerate(on_ranks(size, work)):
        assert everywhere == expected and part == expected
        if rank == 1:
            assert at_root == expected


@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype, op):
    reduced_everywhere(dtype, op, 2)


@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX", "AVG"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype, op):
    reduced_everywhere(dtype, op, 2)


def test_four_ranks():
    reduced_everywhere(torch.float32, "AVG", 4)
    reduced_everywhere(torch.int16, "BXOR", 4)


@pytest.mark.parametrize(
    "op, truth",
    [
        ("SUM", any),
        ("MAX", any),
        ("BOR", any),
        ("PRODUCT", all),
        ("MIN", all),
        ("BAND", all),
        ("BXOR", lambda column: sum(column) % 2 == 1),
    ],
)
def test_truth_values(op, truth):
    inputs = [[True, True, False, False], [True, False, True, False]]

    def work(rank):
        tensor = torch.tensor(inputs[rank])
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        return tensor.tolist()

    assert on_ranks(2, work) == 2 * [[truth(column) for column in zip(*inputs)]]


def test_factor_before_a_sum():
    def work(rank):
        tensor = torch.tensor([1.0, 2.0]) * (rank + 1)
        dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
        part = torch.zeros(1)
        factor = torch.tensor([0.25])
        dist.reduce_scatter_single(
            part, torch.tensor([4.0, 8.0]), op=dist._make_nccl_premul_sum(factor)
        )
        return tensor.tolist(), part.tolist()

    assert on_ranks(2, work) == [([1.5, 3.0], [2.0]), ([1.5, 3.0], [4.0])]


def test_complex_numbers():
    def work(rank):
        total = torch.tensor([1 + 2j, 3j]) * (rank + 1)
        dist.all_reduce(total)
        moved = torch.tensor([rank + 1j])
        dist.broadcast(moved, 1)
        conjugate = torch.tensor([1 + 1j * rank]).conj()  # a view: its memory holds 1 + 1j * rank
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        backend.broadcast(conjugate, 1).wait()
        return total.tolist(), moved.tolist(), conjugate.tolist()

    assert on_ranks(2, work) == 2 * [([3 + 6j, 9j], [1 + 1j], [1 - 1j])]


def test_what_has_no_meaning_is_refused_by_name():
    def work(rank):
        texts = []
        for dtype, op in [
            (torch.float32, "BAND"),
            (torch.bool, "AVG"),
            (torch.complex64, "AVG"),
        ]:
            try:
                dist.all_reduce(torch.ones(2, dtype=dtype), op=getattr(dist.ReduceOp, op))
                texts.append("")
            except RuntimeError as error:
                texts.append(str(error).splitlines()[0])
        dist.barrier()  # the group can still be used
        return texts

    for bits, truth, complex_average in on_ranks(2, work):
        assert "Cannot use ReduceOp.BAND with non-integral dtype Float" in bits
        assert "Cannot use ReduceOp.AVG with integral dtype Bool" in truth
        assert complex_average == ""


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_an_average_of_integers_is_divided_towards_zero(dtype):
    def work(rank):
        average = torch.tensor([rank, -3 * rank if dtype.is_signed else 7, 4], dtype=dtype)
        dist.all_reduce(average, op=dist.ReduceOp.AVG)
        return average.tolist()

    for got in on_ranks(2, work):
        assert got == [0, -1 if dtype.is_signed else 7, 4]


def test_ddp_with_complex_parameters():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
            self.second = torch.nn.Parameter(torch.ones(5, dtype=torch.complex64))
            self.real = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return (self.first * x).real.sum() + (self.second * (1j * x)).real.sum() + (self.real * x).sum()

    def work(rank):
        model = torch.nn.parallel.DistributedDataParallel(Model())
        model(torch.tensor(rank + 1.0)).backward()
        return [each.grad.tolist() for each in model.parameters()]

    assert on_ranks(2, work) == [[[1.5] * 3, [-1.5j] * 5, [1.5] * 2]] * 2


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool, torch.complex64], ids=str)
def test_every_type_moves(dtype):
    def work(rank):
        bits = torch.arange(32, dtype=torch.uint8) + 100 * rank
        own = (bits % 2 == 1) if dtype == torch.bool else bits.view(dtype)
        copies = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(copies, own)
        return [copy.view(torch.uint8).tolist() for copy in copies]

    def sent(rank):
        bits = [(i + 100 * rank) % 256 for i in range(32)]
        return [bit % 2 for bit in bits] if dtype == torch.bool else bits

    assert on_ranks(2, work) == 2 * [[sent(0), sent(1)]]
