"""Reductions of lists, with gradients, compression and factors."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import hccl
import tensorflow as tf

from hccl import _horovod, _world
from hccl._horovod import ProcessSet, global_process_set
from hccl.tensorflow import _differentiable, _fusion, _names, _ops
from hccl.tensorflow._compression import Compression


@tf.autograph.experimental.do_not_convert
def reduce_list(
    tensors: Sequence[Any],
    reduction: str,
    group: str = hccl.WORLD,
    names: Sequence[str] = (),
) -> list[Any]:
    """Returns the reduced list; None stays None. names: the tensors' names in errors and traces.
    Ranks compare them if they are _names.Name."""
    if reduction not in _horovod.REDUCTIONS:
        raise ValueError(f'hccl: there is no reduction "{reduction}"')
    there = [i for i, tensor in enumerate(tensors) if tensor is not None]
    values = [tf.convert_to_tensor(tensors[i]) for i in there]
    if not values:
        return list(tensors)
    ranks = _world.ranks(group)
    mean = reduction == "mean"
    op = "sum" if mean else reduction
    divisor = ranks if mean else 1
    called = [str(i) for i in there] if not names else [names[i] for i in there]
    floats = all(value.dtype in _ops.FLOATS for value in values)
    with _names.comparing("averaged" if mean and not floats else ""):  # integers: divided below
        if _fusion.wanted(values, reduction, group):
            reduced = _fusion.reduce(values, mean, called)
        elif len(values) == 1:
            reduced = [_ops.all_reduce(values[0], op, group, divisor if floats else 1, called)]
        else:
            reduced = _ops.grouped_all_reduce(values, op, group, divisor, called)
    results = list(tensors)
    for i, tensor in zip(there, reduced):
        if mean and tensor.dtype not in _ops.FLOATS:
            tensor = tf.divide(tensor, tf.cast(ranks, tensor.dtype))
        results[i] = tensor
    return results


@_ops.in_sequence()
def reduce_gradients(
    gradients: Sequence[Any],
    reduction: str,
    group: str = hccl.WORLD,
    names: Sequence[str] = (),
    sparse_as_dense: bool = False,
) -> list[Any]:
    """Like reduce_list(), but the sum or mean of IndexedSlices stays sparse, with the rows of all
    ranks. Ranks may have different numbers of rows."""
    if sparse_as_dense or reduction not in ("mean", "sum"):
        return reduce_list(gradients, reduction, group, names)
    sparse = [isinstance(gradient, tf.IndexedSlices) for gradient in gradients]
    dense = [None if own else gradient for own, gradient in zip(sparse, gradients)]
    results = reduce_list(dense, reduction, group, names)
    ranks = _world.ranks(group)
    for i, gradient in enumerate(gradients):
        if not sparse[i]:
            continue
        with _names.comparing("averaged" if reduction == "mean" else ""):  # divided below
            values = gathered(gradient.values, group, names[i : i + 1])
            indices = gathered(gradient.indices, group, names[i : i + 1])
        if reduction == "mean":
            values = tf.divide(values, tf.cast(ranks, values.dtype))
        results[i] = tf.IndexedSlices(values, indices, gradient.dense_shape)
    return results


def gathered(
    tensor: tf.Tensor, group: str, names: Sequence[str], mean: bool = False
) -> tf.Tensor:
    """Concatenates the ranks' tensors along the first dimension. Its length may differ between
    ranks. Backward gives each rank the sum of the gradients of its rows, or their mean."""
    ranks = _world.ranks(group)
    rows = tf.shape(tensor, out_type=tf.int64)[:1]
    counts = _ops.all_gather(rows, ranks, group, names)
    most = tf.reduce_max(counts)
    padding = tf.concat([[[0, most - rows[0]]], tf.zeros([tf.rank(tensor) - 1, 2], tf.int64)], 0)
    padded = _differentiable.all_gather(tf.pad(tensor, padding), ranks, group, names, mean)
    parts = tf.reshape(padded, tf.concat([[ranks, -1], tf.shape(tensor)[1:]], 0))
    return tf.boolean_mask(parts, tf.sequence_mask(counts, most))


def reduce_packed(
    tensors: Sequence[Any], reduction: str, group: str, names: Sequence[str],
    compression: Any = Compression.none, prescale: float = 1.0, postscale: float = 1.0,
    sparse_as_dense: bool = False,
) -> list[Any]:
    """Like reduce_gradients(), but multiplies the tensors by `prescale` and compresses them before
    the reduction, and decompresses the results and multiplies them by `postscale`."""
    packed, contexts = [scaled(tensor, prescale) for tensor in tensors], {}
    for i, tensor in enumerate(packed):
        if tensor is not None and (sparse_as_dense or not isinstance(tensor, tf.IndexedSlices)):
            packed[i], contexts[i] = compression.compress(tf.convert_to_tensor(tensor))
    with _names.comparing(_horovod.factors_text(prescale, postscale)):
        results = reduce_gradients(packed, reduction, group, names)
    for i, context in contexts.items():
        results[i] = compression.decompress(results[i], context)
    return [scaled(result, postscale) for result in results]


def scaled(tensor: Any, factor: float) -> Any:
    """Returns the product in the tensor's type. Computes 16-bit floats in fp32, integers in
    fp64."""
    if factor == 1.0 or tensor is None:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        values = scaled(tensor.values, factor)
        return tf.IndexedSlices(values, tensor.indices, tensor.dense_shape)
    tensor = tf.convert_to_tensor(tensor)
    narrow = tensor.dtype.is_floating and tensor.dtype.size <= 4
    wide = tf.cast(tensor, tf.float32 if narrow else tf.float64)
    return tf.cast(wide * factor, tensor.dtype)


def mark_reduced(gradients: Sequence[Any], place: Any) -> None:
    """Marks gradients as reduced over the ranks of `place`, a pair of process set and group."""
    for gradient in gradients:
        if gradient is not None:
            gradient._hccl_reduced = place


def is_reduced(gradient: Any, place: Any) -> bool:
    return getattr(gradient, "_hccl_reduced", None) == place


def reduce_those(
    reduce: Callable[[list, list], list], chosen: Sequence[bool], gradients: list, names: list
) -> list:
    """Reduces the chosen gradients. Returns the other gradients unchanged."""
    if all(chosen):
        return reduce(gradients, names)
    results = reduce([g if own else None for own, g in zip(chosen, gradients)], names)
    return [result if own else g for own, g, result in zip(chosen, gradients, results)]


def gradient_reducer(
    op: Any, group: str, *, name: str | None = None, device_dense: str = "",
    device_sparse: str = "", compression: Any = Compression.none, sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None,
    process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
) -> Callable[[list, list], list]:
    """Returns the function with which a DistributedOptimizer or DistributedGradientTape reduces.
    The arguments of that function are the gradients and the names of their variables. On ranks
    outside the process set, it returns the gradients unchanged."""
    reduction = _horovod.reduction(op)
    _horovod.check_devices(device_dense=device_dense, device_sparse=device_sparse)
    _horovod.check_groups(num_groups, groups)
    if gradient_predivide_factor != 1.0 and reduction != "mean":
        raise ValueError("hccl: gradient_predivide_factor is for means: omit op or the factor")
    if not scale_local_gradients:
        _horovod.refuse("scale_local_gradients", False, "there are no local variables")
    before, after = 1.0 / gradient_predivide_factor, gradient_predivide_factor

    def reduce(gradients: list, names: list) -> list:
        if not process_set.included():
            return gradients
        own = _horovod.group_of(process_set, group)
        with tf.name_scope(f"{name or 'Distributed'}_Allreduce"):
            return reduce_packed(
                gradients, reduction, own, names, compression, before, after, sparse_as_dense
            )

    return reduce
