"""Ray's collective groups on hccl: ray.util.collective with the backend "HCCL".

    import hccl.ray  # on the driver and in each actor

    init_collective_group(world_size, rank, "HCCL", group_name)

The import registers the backend in the importing process. To register it in every process of a job:
ray.init(runtime_env={"worker_process_setup_hook": "hccl.ray.register"}).

A group's arrays are numpy arrays and PyTorch tensors in contiguous CPU memory. Rank 0 puts the root
info into Ray's key-value store, where the other ranks read it. The root info contains the secret of
the group. Rank 0 deletes it when all ranks have joined or joining has failed.
"""

from __future__ import annotations

import time
from typing import Any, Optional

import numpy as np
import ray
from ray.experimental import internal_kv
from ray.util.collective import types
from ray.util.collective.backend_registry import BackendRegistry, register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup

from hccl import _variables
from hccl._results import empty_like
from hccl.communicator import Communicator, root_info

NAME = "HCCL"
_OPS = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}
_POLL = 0.02  # seconds


def register() -> None:
    """Registers the backend in this process. A second call does nothing. ValueError: another
    package has registered the name."""
    registry = BackendRegistry()
    if not (registry.is_registered(NAME) and registry.get(NAME) is HcclGroup):
        register_collective_backend(NAME, HcclGroup)


class HcclGroup(BaseGroup):
    """One actor's membership of a group. Ray makes and calls the object; programs call
    ray.util.collective.

    Ray passes each array as a list of one array, and each list of arrays as a list of one list.
    The methods store results in the caller's arrays. ValueError or TypeError: an array does not
    fit; nothing was sent. HcclError: the operation failed; the text names the ranks."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        """Joins, and returns when all ranks have joined. HcclError: some rank did not join within
        HCCL_CONNECT_TIMEOUT. TimeoutError: rank 0 did not begin to join within that time."""
        super().__init__(world_size, rank, group_name)
        self._communicator = _join(world_size, rank, group_name)

    @classmethod
    def backend(cls) -> str:
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        """Leaves the group."""
        self._communicator.destroy()

    def allreduce(self, tensor: Any, allreduce_options: Any = types.AllReduceOptions()) -> None:
        self._communicator.allreduce(_only(tensor), _op(allreduce_options))

    def reduce(self, tensor: Any, reduce_options: Any = types.ReduceOptions()) -> None:
        """Reduces the arrays of all ranks. The root gets the result; the arrays of all other ranks
        do not change."""
        self._communicator.reduce(_only(tensor), _op(reduce_options), reduce_options.root_rank)

    def broadcast(self, tensor: Any, broadcast_options: Any = types.BroadcastOptions()) -> None:
        self._communicator.broadcast(_only(tensor), broadcast_options.root_rank)

    def allgather(
        self,
        tensor_list: Any,
        tensor: Any,
        allgather_options: Any = types.AllGatherOptions(),
    ) -> None:
        """Fills array i of the list with the array of rank i."""
        mine, outputs = _only(tensor), _parts(tensor_list, tensor)
        gathered = empty_like(mine, (self.world_size, *mine.shape))
        self._communicator.allgather(mine, gathered)
        for i, output in enumerate(outputs):
            _copy(output, gathered[i, ...])

    def reducescatter(
        self,
        tensor: Any,
        tensor_list: Any,
        reducescatter_options: Any = types.ReduceScatterOptions(),
    ) -> None:
        """Reduces the lists of all ranks, element by element. Rank i's array gets the result of
        element i."""
        output, inputs = _only(tensor), _parts(tensor_list, tensor)
        joined = empty_like(output, (self.world_size, *output.shape))
        for i, each in enumerate(inputs):
            _copy(joined[i, ...], each)
        self._communicator.reduce_scatter(joined, _op(reducescatter_options), output)

    def barrier(self, barrier_options: Any = types.BarrierOptions()) -> None:
        self._communicator.barrier()

    def send(self, tensor: Any, send_options: Any) -> None:
        self._communicator.send(_only(tensor), send_options.dst_rank)

    def recv(self, tensor: Any, recv_options: Any) -> None:
        self._communicator.recv(_only(tensor), recv_options.src_rank)


def _join(size: int, rank: int, group: str) -> Communicator:
    # Jobs in different namespaces may use the same group name for different groups.
    key = f"hccl_root_info/{ray.get_runtime_context().namespace}/{group}"
    if rank != 0:
        return Communicator.from_root_info(_root_info_of(key, group), size, rank)
    info = root_info()
    internal_kv._internal_kv_put(key, info, overwrite=True)
    try:
        return Communicator.from_root_info(info, size, rank)
    finally:
        internal_kv._internal_kv_del(key)


def _root_info_of(key: str, group: str) -> bytes:
    limit = float(_variables.value("HCCL_CONNECT_TIMEOUT", "120"))
    end = time.monotonic() + limit
    while True:
        info: Optional[bytes] = internal_kv._internal_kv_get(key)
        if info is not None:
            return info
        if time.monotonic() > end:
            raise TimeoutError(f"group {group!r}: rank 0 has not come within {limit:g} seconds")
        time.sleep(_POLL)


def _op(options: Any) -> str:
    return _OPS[options.reduceOp.name]


def _one(arrays: Any) -> Any:
    if len(arrays) != 1:
        raise ValueError(f"arrays: an actor has one, not {len(arrays)}")
    return arrays[0]


def _only(arrays: Any) -> Any:
    return _plain(_one(arrays))


def _plain(array: Any) -> Any:
    return array.detach() if hasattr(array, "detach") else array


def _parts(lists: Any, whole: Any) -> list[Any]:
    """Returns the arrays of the only list in `lists`. Each must have the shape of the array in
    `whole`."""
    parts, shape = [_plain(each) for each in _one(lists)], tuple(_one(whole).shape)
    for i, part in enumerate(parts):
        if tuple(part.shape) != shape:
            raise ValueError(f"tensor_list[{i}]: has the shape {tuple(part.shape)}, not {shape}")
    return parts


def _copy(output: Any, array: Any) -> None:
    if hasattr(output, "copy_") and hasattr(array, "copy_"):  # torch, also for types that numpy lacks
        output.copy_(array)
    else:
        np.asarray(output)[...] = np.asarray(array)


register()
