"""Calls libhccl.so through the unmodified files of vllm-ascend, on the ranks that torchrun starts. Argument: "wrapper"
or "communicator". Variables: HCCL_SO_PATH, and PYTHONPATH with vllm-ascend's files. Only names that do not communicate
have stand-ins: vLLM's logger and the type of a group, vllm-ascend's search for the library and its current stream."""

import functools
import logging
import os
import sys
import types

import numpy as np

import torch
import torch.distributed as dist

OPERATORS = {"SUM": np.add, "PRODUCT": np.multiply, "MAX": np.maximum, "MIN": np.minimum}
TYPES = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16]
COUNTS = [1, 1000, 300_000]


def stand_in(name, **names):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(names)


def stand_ins(stream):
    stand_in("vllm")
    stand_in("vllm.distributed")
    stand_in("vllm.logger", logger=logging.getLogger("vllm"))
    stand_in("vllm.distributed.utils", StatelessProcessGroup=type("StatelessProcessGroup", (), {}))
    library = functools.partial(os.environ.__getitem__, "HCCL_SO_PATH")
    stand_in("vllm_ascend.utils", find_hccl_library=library, current_stream=stream)


def numbers(rank, count):
    """Returns whole numbers whose sums and products fit all types."""
    return np.random.default_rng(rank).integers(0, 5, count)


def check(all_reduce, broadcast, place=torch.Tensor.clone):
    """Compares each call, type and operator with NumPy. `place` copies a tensor to the device."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in TYPES:
        for count in COUNTS:
            everyone = [numbers(each, count) for each in range(size)]
            for name, reduce in OPERATORS.items():
                sent = place(torch.tensor(everyone[rank], dtype=kind))
                got = all_reduce(sent, getattr(dist.ReduceOp, name))
                expected = functools.reduce(reduce, everyone)
                np.testing.assert_array_equal(got.double().numpy(), expected, f"{kind} {name}")
                np.testing.assert_array_equal(sent.double().numpy(), everyone[rank])
            for root in range(size):
                data = place(torch.tensor(everyone[rank], dtype=kind))
                broadcast(data, root)
                np.testing.assert_array_equal(data.double().numpy(), everyone[root], f"{kind} from {root}")


def wrapper():
    stand_ins(None)
    from vllm_ascend.distributed.device_communicators import pyhccl_wrapper as shipped

    hccl = shipped.HCCLLibrary()
    said = [bytes(hccl.hcclGetUniqueId()) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(said)
    root = shipped.hcclUniqueId.from_buffer_copy(said[0])
    comm = hccl.hcclCommInitRank(dist.get_world_size(), root, dist.get_rank())
    kind, operator = shipped.hcclDataTypeEnum.from_torch, shipped.hcclRedOpTypeEnum.from_torch

    def all_reduce(tensor, op):
        out = torch.empty_like(tensor)
        arguments = (tensor.data_ptr(), out.data_ptr(), tensor.numel(), kind(tensor.dtype), operator(op))
        hccl.hcclAllReduce(*arguments, comm, None)
        return out

    def broadcast(tensor, root):
        hccl.hcclBroadcast(tensor.data_ptr(), tensor.numel(), kind(tensor.dtype), root, comm, None)

    check(all_reduce, broadcast)
    try:
        hccl.hcclBroadcast(None, 1, kind(torch.float32), 0, comm, None)
    except RuntimeError as error:
        assert str(error).startswith("HCCL error: "), error
    else:
        raise AssertionError("a broadcast without a buffer succeeded")
    hccl.hcclCommDestroy(comm)


def communicator():
    """vllm-ascend's PyHcclCommunicator, with torch_npu's names from hccl.torch."""
    import hccl.torch

    hccl.torch.as_npu()
    stand_ins(torch.npu.current_stream)
    from vllm_ascend.distributed.device_communicators.pyhccl import PyHcclCommunicator

    comm = PyHcclCommunicator(dist.group.WORLD, f"npu:{dist.get_rank()}")
    assert comm.available
    check(comm.all_reduce, comm.broadcast, torch.Tensor.npu)
    comm.hccl.hcclCommDestroy(comm.comm)


dist.init_process_group("gloo")
{each.__name__: each for each in (wrapper, communicator)}[sys.argv[1]]()
print(f"rank {dist.get_rank()}: right")
dist.destroy_process_group()
