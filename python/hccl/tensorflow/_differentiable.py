"""Collectives with gradients, because the ops, as Ascend's hccl_ops, have none. Each gradient is again
one of these functions, so that there are gradients of gradients.

mean: backward divides by the number of ranks, as Horovod's.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf
from hccl.manage import api as _manage

from hccl import _world
from hccl.tensorflow import _names, _ops


def _with_gradient(collective: Any, gradient: Any, tensor: Any) -> Any:
    dense = tf.convert_to_tensor(tensor)  # a gradient may be IndexedSlices
    return tf.custom_gradient(lambda own: (collective(own), gradient))(dense)


def all_gather(tensor: Any, ranks: int, group: str, names: Sequence[str], mean: bool) -> Any:
    backward = _names.of_gradients(names)
    return _with_gradient(
        lambda own: _ops.all_gather(own, ranks, group, names),
        lambda gradient: reduce_scatter(gradient, "sum", ranks, group, backward)
        / (ranks if mean else 1),
        tensor,
    )


def reduce_scatter(
    tensor: Any, reduction: str, ranks: int, group: str, names: Sequence[str], horovod: bool = False
) -> Any:
    """horovod: backward is Horovod's allgather, times the number of ranks."""
    backward = _names.of_gradients(names)
    return _with_gradient(
        lambda own: _ops.reduce_scatter(own, reduction, ranks, group, names),
        lambda gradient: all_gather(gradient, ranks, group, backward, mean=horovod)
        * (ranks if horovod else 1),
        tensor,
    )


def broadcast(tensor: Any, root: int, group: str, names: Sequence[str], mean: bool) -> Any:
    ranks, backward = _world.ranks(group), _names.of_gradients(names)
    return _with_gradient(
        lambda own: _ops.broadcast([own], root, group, names)[0],
        lambda gradient: _reduce(gradient, root, group, backward) / (ranks if mean else 1),
        tensor,
    )


def _reduce(tensor: Any, root: int, group: str, names: Sequence[str]) -> Any:
    """Returns the sum on the root, and zeros on the other ranks."""

    def reduced(own: Any) -> Any:
        total = _ops.reduce(own, "sum", root, group, names)
        if _manage.get_rank_id(group) == root:
            return total
        with tf.control_dependencies([total]):  # the root waits for this rank
            return tf.zeros_like(own)

    backward = _names.of_gradients(names)
    return _with_gradient(
        reduced, lambda gradient: broadcast(gradient, root, group, backward, False), tensor
    )


def all_to_all(tensor: Any, counts: Any, rank: int, group: str, names: Sequence[str]) -> Any:
    """counts[i][j]: the number of elements that rank i sends to rank j."""
    backward = _names.of_gradients(names)
    return _with_gradient(
        lambda own: _ops.all_to_all_v_c(own, counts, rank, group, names),
        lambda gradient: all_to_all(gradient, tf.transpose(counts), rank, group, backward),
        tensor,
    )
