"""HCCL's ops for graphs of TensorFlow 1. The ops of one session.run run in the order in which the
program created them, which must be the same on all ranks. Most ops are those of npu_device. Only
here do allgather and reduce_scatter have the argument `fusion`."""

from __future__ import annotations

from typing import Any

import hccl
from hccl.tensorflow import _ops
from npu_device._kept import absent
from npu_device.distribute import hccl_ops as _device
from npu_device.distribute.hccl_ops import (
    REDUCTIONS as REDUCTIONS,
    allreduce as allreduce,
    broadcast as broadcast,
    check_fusion,
    joins,
    receive as receive,
    reduce as reduce,
    send as send,
)


def allgather(
    tensor: Any, rank_size: int, group: str = hccl.WORLD, fusion: int = 0, fusion_id: int = -1
) -> Any:
    """Concatenates the tensors of all ranks. The first dimension becomes rank_size times as
    long."""
    check_fusion(fusion, fusion_id, (0, 2))
    return _device.allgather(tensor, rank_size, group)


def reduce_scatter(
    tensor: Any,
    reduction: str,
    rank_size: int,
    group: str = hccl.WORLD,
    fusion: int = 0,
    fusion_id: int = -1,
) -> Any:
    """Returns this rank's part of the reduced tensor. The length of its first dimension is divided
    by rank_size."""
    check_fusion(fusion, fusion_id, (0, 2))
    return _device.reduce_scatter(tensor, reduction, rank_size, group)


@joins
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


@joins
def all_to_all_v_c(
    send_data: Any,
    send_count_matrix: Any,
    rank: int,
    fusion: int = 0,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> Any:
    check_fusion(fusion, fusion_id, (0, 2))
    return _ops.all_to_all_v_c(send_data, send_count_matrix, rank, group)


_WHY = "it uses addresses of NPU memory; use send, receive or all_to_all_v"
gather_all_to_all_v = absent("hccl_ops.gather_all_to_all_v", _WHY)
remote_read = absent("hccl_ops.remote_read", _WHY)
remote_ref_read = absent("hccl_ops.remote_ref_read", _WHY)
remote_write = absent("hccl_ops.remote_write", _WHY)
remote_scatter_write = absent("hccl_ops.remote_scatter_write", _WHY)
