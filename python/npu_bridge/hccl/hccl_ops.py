"""HCCL's ops for graphs of TensorFlow 1. Those of one session.run are called in the order in which
the program has made them, the same on all ranks."""

from __future__ import annotations

from typing import Any, NoReturn, Sequence

import hccl
from hccl.tensorflow import _ops

REDUCTIONS = ("max", "min", "prod", "sum")


def _check(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f'reduction "{reduction}" is not one of {", ".join(REDUCTIONS)}')


def _check_fusion(fusion: int, fusion_id: int, allowed: Sequence[int]) -> None:
    if fusion not in allowed:
        raise ValueError(f"fusion {fusion} is not one of {list(allowed)}")
    if fusion == 1 and fusion_id != -1:
        raise ValueError("fusion 1 needs the fusion_id -1")
    if fusion == 2 and fusion_id < 0:
        raise ValueError("fusion 2 needs a fusion_id that is not negative")


def allreduce(
    tensor: Any, reduction: str, fusion: int = 1, fusion_id: int = -1, group: str = hccl.WORLD
) -> Any:
    """reduction: "max", "min", "prod" or "sum"."""
    _check(reduction)
    _check_fusion(fusion, fusion_id, (0, 1, 2))
    return _ops.all_reduce(tensor, reduction, group)


def allgather(
    tensor: Any, rank_size: int, group: str = hccl.WORLD, fusion: int = 0, fusion_id: int = -1
) -> Any:
    """The first dimension becomes rank_size times as long."""
    _check_fusion(fusion, fusion_id, (0, 2))
    return _ops.all_gather(tensor, rank_size, group)


def broadcast(
    tensor: Sequence[Any],
    root_rank: int,
    fusion: int = 2,
    fusion_id: int = 0,
    group: str = hccl.WORLD,
) -> list:
    """A list of tensors, of any types, as they are on the root."""
    if not isinstance(tensor, (list, tuple)):
        raise ValueError("tensor: expected a list of tensors")
    _check_fusion(fusion, fusion_id, (0, 2))
    return _ops.broadcast(tensor, root_rank, group)


def reduce(
    tensor: Any,
    reduction: str,
    root_rank: int,
    fusion: int = 0,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> Any:
    """On other ranks than the root: the rank's own tensor."""
    _check(reduction)
    _check_fusion(fusion, fusion_id, (0, 2))
    return _ops.reduce(tensor, reduction, root_rank, group)


def reduce_scatter(
    tensor: Any,
    reduction: str,
    rank_size: int,
    group: str = hccl.WORLD,
    fusion: int = 0,
    fusion_id: int = -1,
) -> Any:
    """The first dimension becomes rank_size times shorter."""
    _check(reduction)
    _check_fusion(fusion, fusion_id, (0, 2))
    return _ops.reduce_scatter(tensor, reduction, rank_size, group)


def send(tensor: Any, sr_tag: int, dest_rank: int, group: str = hccl.WORLD) -> Any:
    return _ops.send(tensor, sr_tag, dest_rank, group)


def receive(
    shape: Any, data_type: Any, sr_tag: int, src_rank: int, group: str = hccl.WORLD
) -> Any:
    return _ops.receive(shape, data_type, sr_tag, src_rank, group)


def all_to_all_v(
    send_data: Any,
    send_counts: Any,
    send_displacements: Any,
    recv_counts: Any,
    recv_displacements: Any,
    group: str = hccl.WORLD,
) -> Any:
    return _ops.all_to_all_v(
        send_data, send_counts, send_displacements, recv_counts, recv_displacements, group
    )


def all_to_all_v_c(
    send_data: Any,
    send_count_matrix: Any,
    rank: int,
    fusion: int = 0,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> Any:
    _check_fusion(fusion, fusion_id, (0, 2))
    return _ops.all_to_all_v_c(send_data, send_count_matrix, rank, group)


def _of_a_device(name: str) -> NoReturn:
    raise NotImplementedError(
        f"hccl: {name} reads addresses of NPU memory; use hccl_ops.send, receive or all_to_all_v"
    )


def gather_all_to_all_v(*args: Any, **kwargs: Any) -> NoReturn:
    _of_a_device("gather_all_to_all_v")


def remote_read(*args: Any, **kwargs: Any) -> NoReturn:
    _of_a_device("remote_read")


def remote_ref_read(*args: Any, **kwargs: Any) -> NoReturn:
    _of_a_device("remote_ref_read")


def remote_write(*args: Any, **kwargs: Any) -> NoReturn:
    _of_a_device("remote_write")


def remote_scatter_write(*args: Any, **kwargs: Any) -> NoReturn:
    _of_a_device("remote_scatter_write")
