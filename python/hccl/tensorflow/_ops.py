"""The ops on TensorFlow's tensors: what hccl.tensorflow, npu_device and npu_bridge are made of.

In a tf.function ops run in the order of the program, one after the other, which has to be the same
on all ranks. In a graph of TensorFlow 1 they have a number, by which the graph optimizer
"NpuOptimizer" (src/order.cc) chains those of a run; npu_bridge asks sessions for it.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Optional, Sequence

import hccl
import tensorflow as tf

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """The compiled ops for the TensorFlow of this process: loaded, and built first if missing."""
    import hccl._hccl  # noqa: F401  its libhccl.so is the one that the ops use
    from hccl.tensorflow.build import MODULE

    return tf.load_op_library(str(MODULE.build()))


_numbers = itertools.count(1)


def _numbered(result: Any) -> Any:
    """In a graph: gives the op its place in the program's order."""
    if not tf.executing_eagerly():
        one = result[0] if isinstance(result, (list, tuple)) else result
        op = one if isinstance(one, tf.Operation) else one.op
        op._set_attr("_hccl_order", tf.compat.v1.AttrValue(i=next(_numbers)))
    return result


def all_reduce(
    tensor: Any, reduction: str = "sum", group: str = hccl.WORLD, postscale: float = 1.0
) -> tf.Tensor:
    """`postscale`, for sums of floats only, multiplies the result."""
    return _numbered(library().hccl_all_reduce(
        tensor=tensor, reduction=reduction, postscale=postscale, group=group
    ))


def grouped_all_reduce(
    tensors: Sequence[Any],
    reduction: str = "sum",
    group: str = hccl.WORLD,
    postscale: float = 1.0,
    names: Optional[Sequence[str]] = None,
) -> list[tf.Tensor]:
    """Tensors of any types at once: one op for each type. names: of the tensors, for errors."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    names = [str(i) for i in range(len(tensors))] if names is None else list(names)
    results: list[Any] = [None] * len(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        own = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
        reduced = _numbered(
            library().hccl_grouped_all_reduce(
                tensors=[tensors[i] for i in own],
                reduction=reduction,
                postscale=postscale if dtype in FLOATS else 1.0,
                names=[names[i] for i in own],
                group=group,
            )
        )
        for i, tensor in zip(own, reduced):
            results[i] = tensor
    return results


def broadcast(tensors: Sequence[Any], root: int, group: str = hccl.WORLD) -> list[tf.Tensor]:
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    return list(
        _numbered(library().hccl_broadcast(tensors=tensors, root_rank=root, group=group))
    )


def reduce(tensor: Any, reduction: str, root: int, group: str = hccl.WORLD) -> tf.Tensor:
    """On other ranks than the root: the rank's own tensor."""
    return _numbered(library().hccl_reduce(tensor=tensor, reduction=reduction, root_rank=root, group=group))


def all_gather(tensor: Any, ranks: int, group: str = hccl.WORLD) -> tf.Tensor:
    """One behind the other in the first dimension, which is as long on all ranks."""
    return _numbered(library().hccl_all_gather(tensor=tensor, rank_size=ranks, group=group))


def reduce_scatter(tensor: Any, reduction: str, ranks: int, group: str = hccl.WORLD) -> tf.Tensor:
    """Of the reduced tensor, this rank's part of the first dimension."""
    return _numbered(library().hccl_reduce_scatter(
        tensor=tensor, reduction=reduction, rank_size=ranks, group=group
    ))


def all_to_all_v(
    data: Any,
    send_counts: Any,
    send_displacements: Any,
    recv_counts: Any,
    recv_displacements: Any,
    group: str = hccl.WORLD,
) -> tf.Tensor:
    """1-D; counts and displacements are int64, in elements, one a rank."""
    return _numbered(library().hccl_all_to_all_v(
        send_data=data,
        send_counts=send_counts,
        send_displacements=send_displacements,
        recv_counts=recv_counts,
        recv_displacements=recv_displacements,
        group=group,
    ))


def all_to_all_v_c(data: Any, matrix: Any, rank: int, group: str = hccl.WORLD) -> tf.Tensor:
    """matrix[i][j]: the elements that rank i gives to rank j, the same on all ranks."""
    return _numbered(library().hccl_all_to_all_vc(
        send_data=data, send_count_matrix=matrix, rank=rank, group=group
    ))


def send(tensor: Any, tag: int, dest: int, group: str = hccl.WORLD) -> Any:
    return _numbered(library().hccl_send(tensor=tensor, sr_tag=tag, dest_rank=dest, group=group))


def receive(shape: Any, dtype: Any, tag: int, src: int, group: str = hccl.WORLD) -> tf.Tensor:
    return _numbered(library().hccl_receive(shape=shape, T=dtype, sr_tag=tag, src_rank=src, group=group))


@tf.RegisterGradient("HcclAllReduce")
def _all_reduce_gradient(op: Any, gradient: Any) -> Any:
    return all_reduce(
        gradient, "sum", op.get_attr("group").decode(), float(op.get_attr("postscale"))
    )


@tf.RegisterGradient("HcclGroupedAllReduce")
def _grouped_all_reduce_gradient(op: Any, *gradients: Any) -> Any:
    return grouped_all_reduce(
        gradients, "sum", op.get_attr("group").decode(), float(op.get_attr("postscale"))
    )


for _name in ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllToAllV", "AllToAllVC"):
    tf.no_gradient(f"Hccl{_name}")
