"""HCCL's ops: single collectives. Each op blocks until it is done, in the program's order. If this
process has not joined, the first op joins the ranks that the environment describes."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import hccl
import tensorflow as tf
from hccl import _world
from hccl.tensorflow import _ops

from npu_device._kept import absent

REDUCTIONS = ("max", "min", "prod", "sum")


def joins(op: Callable) -> Callable:
    """Makes the op join the ranks first."""

    @functools.wraps(op)
    def joined(*args: Any, **kwargs: Any) -> Any:
        _world.refuse_in_fork()
        _world.join_as_told()
        return op(*args, **kwargs)

    return tf.autograph.experimental.do_not_convert(joined)


def check_fusion(fusion: int, fusion_id: int, allowed: Sequence[int]) -> None:
    if fusion not in allowed:
        raise ValueError(f"fusion {fusion} is not one of {list(allowed)}")
    if fusion == 2 and fusion_id < 0:
        raise ValueError("fusion 2 needs a fusion_id that is not negative")
    if fusion == 1 and fusion_id != -1:
        raise ValueError("fusion 1 needs the fusion_id -1")


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f'reduction "{reduction}" is not one of {", ".join(REDUCTIONS)}')


@joins
def allreduce(
    tensor: Any, reduction: str, fusion: int = 1, fusion_id: int = -1, group: str = hccl.WORLD
) -> tf.Tensor:
    check_reduction(reduction)
    check_fusion(fusion, fusion_id, (0, 1, 2))
    return _ops.all_reduce(tensor, reduction, group)


@joins
def allgather(tensor: Any, rank_size: int, group: str = hccl.WORLD) -> tf.Tensor:
    """Concatenates the tensors of all ranks. The first dimension becomes rank_size times as
    long."""
    return _ops.all_gather(tensor, rank_size, group)


@joins
def broadcast(
    tensor: Sequence[Any],
    root_rank: int,
    fusion: int = 2,
    fusion_id: int = 0,
    group: str = hccl.WORLD,
) -> list:
    """Returns the root's values of a list of tensors, which may have any types."""
    check_fusion(fusion, fusion_id, (0, 2))
    if not isinstance(tensor, (list, tuple)):
        raise ValueError("tensor: expected a list of tensors")
    return _ops.broadcast(tensor, root_rank, group)


@joins
def reduce(
    tensor: Any,
    reduction: str,
    root_rank: int,
    fusion: int = 0,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> tf.Tensor:
    """Returns the reduced tensor on the root, and the rank's own tensor on other ranks."""
    check_reduction(reduction)
    check_fusion(fusion, fusion_id, (0, 2))
    return _ops.reduce(tensor, reduction, root_rank, group)


@joins
def reduce_scatter(
    tensor: Any, reduction: str, rank_size: int, group: str = hccl.WORLD
) -> tf.Tensor:
    """Returns this rank's part of the reduced tensor. The length of its first dimension is divided
    by rank_size."""
    check_reduction(reduction)
    return _ops.reduce_scatter(tensor, reduction, rank_size, group)


@joins
def send(tensor: Any, sr_tag: int, dest_rank: int, group: str = hccl.WORLD) -> Any:
    return _ops.send(tensor, sr_tag, dest_rank, group)


@joins
def receive(
    shape: Any, data_type: Any, sr_tag: int, src_rank: int, group: str = hccl.WORLD
) -> tf.Tensor:
    return _ops.receive(shape, data_type, sr_tag, src_rank, group)


_WHY = "it uses addresses of NPU memory; use send and receive"
remote_read = absent("hccl_ops.remote_read", _WHY)
remote_ref_read = absent("hccl_ops.remote_ref_read", _WHY)
remote_write = absent("hccl_ops.remote_write", _WHY)
remote_scatter_write = absent("hccl_ops.remote_scatter_write", _WHY)
