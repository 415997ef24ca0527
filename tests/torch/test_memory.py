"""Memory that ranks share: which tensors are in it, and that it behaves like PyTorch's own memory."""

import gc

import hccl.torch
import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks
from torch.nn.parallel import DistributedDataParallel


def is_shared(tensor):
    """Returns whether the tensor's memory belongs to a memfd, which other ranks can map."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            if begin <= address < end:
                return "memfd:" in line
    return False


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(200, 200) for _ in range(10)])


@pytest.mark.parametrize("view", [True, False])
def test_ddp_buckets(view):
    def work(rank):
        seen = []

        def hook(_, bucket):
            seen.append(is_shared(bucket.buffer()))
            future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return future.then(lambda done: done.value()[0])

        ddp = DistributedDataParallel(model(), gradient_as_bucket_view=view, bucket_cap_mb=0.5)
        ddp.register_comm_hook(None, hook)
        for _ in range(3):
            ddp(torch.ones(2, 200)).sum().backward()
        gradients = [is_shared(parameter.grad) for parameter in ddp.parameters()]
        return seen, gradients

    for buckets, gradients in on_ranks(2, work):
        assert len(buckets) >= 6 and all(buckets)
        assert all(gradients) if view else not any(gradients)


def test_ddp_buckets_can_stay_private(python):
    text = python(
        "import os, torch; print(os.environ['DDP_DISABLE_COMM_MEM'])", DDP_DISABLE_COMM_MEM="1"
    ).stdout
    assert text.strip() == "1"


def test_tensors_of_users():
    def work(rank):
        tensor = hccl.torch.empty(1000)
        assert tensor.shape == (1000,) and tensor.dtype == torch.float32 and is_shared(tensor)
        assert hccl.torch.empty((3, 4), dtype=torch.int16).shape == (3, 4)
        assert hccl.torch.empty(2, 3).shape == (2, 3) and hccl.torch.empty(0).numel() == 0
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor)
        assert (tensor == 3).all()
        tensor.resize_(5000)  # the tensor grows within the same memory
        assert is_shared(tensor) and (tensor[:1000] == 3).all()
        dist.destroy_process_group()
        return tensor[:1000].sum().item()  # the memory outlives the group

    assert on_ranks(2, work) == [3000.0, 3000.0]


def test_memory_comes_back():
    def work(rank):
        for _ in range(200):  # 20 GB in all
            tensor = hccl.torch.empty(25_000_000)
            tensor[::1024] = 1
            del tensor
        gc.collect()

    on_ranks(1, work)


def test_a_module_moves_with_all_it_is():
    def work(rank):
        module = torch.nn.ModuleDict(
            {
                "lstm": torch.nn.LSTM(4, 5),
                "norm": torch.nn.BatchNorm1d(5),
                "out": torch.nn.Linear(5, 4),
            }
        )
        module["tied"] = torch.nn.Linear(5, 4)
        module["tied"].weight = module["out"].weight
        with torch.no_grad():
            module["out"].weight.data = torch.randn(5, 4).t()  # a weight with another stride
        before = {name: value.clone() for name, value in module.state_dict().items()}
        strides = {name: value.stride() for name, value in module.state_dict().items()}
        assert hccl.torch.share_(module) is module
        for name, value in module.state_dict().items():
            assert is_shared(value) and torch.equal(value, before[name])
            assert value.stride() == strides[name]
        assert module["tied"].weight is module["out"].weight
        module["out"](torch.ones(2, 5)).sum().backward()
        assert all(p.requires_grad for p in module.parameters())

    on_ranks(1, work)


class Elsewhere(torch.Tensor):
    """A tensor whose elements are in another tensor, like a DTensor's."""

    __torch_dispatch__ = classmethod(lambda cls, call, *_: pytest.fail(f"{call} was called"))


def test_a_tensor_without_memory_is_refused_before_anything_moves():
    plain, elsewhere = torch.ones(4), torch.Tensor._make_wrapper_subclass(Elsewhere, (4,))
    with pytest.raises(RuntimeError, match="cannot move tensor 1: a Elsewhere has no memory of its own"):
        hccl.torch.share_([plain, elsewhere])
    assert not is_shared(plain)


def test_the_group_allocates_as_fsdp_asks():
    def work(rank):
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        assert backend.supports_tensor_alloc(torch.device("cpu"))
        tensor = backend.allocate_tensor(100, dtype=torch.bfloat16, device=torch.device("cpu"))
        return is_shared(tensor), tensor.dtype == torch.bfloat16, tensor.numel()

    assert on_ranks(1, work) == [(True, True, 100)]
