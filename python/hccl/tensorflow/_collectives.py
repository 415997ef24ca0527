"""Horovod's collectives. Arguments that several functions have:

name: for errors and traces. It must be the same on all ranks; otherwise all ranks get an error.
process_set, group: the ranks that take part, as a ProcessSet or as the name of a group. device,
device_dense, device_sparse: NotImplementedError unless the device is a CPU. compression: a member
of Compression. prescale_factor multiplies each rank's tensor, postscale_factor the result.
ignore_name_scope has no effect, because names lack TensorFlow's scopes.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import hccl
import tensorflow as tf
from hccl.manage import api as _manage

from hccl import _horovod, _world
from hccl._horovod import ProcessSet, global_process_set
from hccl.tensorflow import _differentiable, _names, _ops, _reductions
from hccl.tensorflow._compression import Compression


def allreduce(tensor: Any, op: Optional[str] = None, **options: Any) -> Any:
    """Reduces over all ranks of the group, element by element. op: Average (also if None), Sum,
    Max, Min or Product. A mean of integers is a float. The sum or mean of IndexedSlices has the
    rows of all ranks. Backward gives each rank the mean of all ranks' gradients if op is Average,
    otherwise their sum. options: as for grouped_allreduce."""
    return grouped_allreduce([tensor], op, **options)[0]


def grouped_allreduce(
    tensors: Sequence[Any], op: Optional[str] = None, *, average: Optional[bool] = None,
    device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
    name: Optional[str] = None, group: str = hccl.WORLD,
) -> list[Any]:
    """Reduces a list of tensors at once, each like allreduce(); None stays None. average: True is
    Average, False is Sum."""
    _horovod.check_devices(device_dense=device_dense, device_sparse=device_sparse)
    return _reductions.reduce_packed(
        tensors,
        _horovod.reduction(op, average),
        _horovod.group_of(process_set, group),
        _numbered(name, len(tensors)),
        compression,
        prescale_factor,
        postscale_factor,
    )


def _numbered(name: Optional[str], count: int) -> list[str]:
    """Returns a name for each tensor of a list, if the program gives the list a name."""
    if name is None or count == 1:
        return _names.of_program(name)
    return [_names.of_program(f"{name}.{i}")[0] for i in range(count)]


def allgather(
    tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set, *, group: str = hccl.WORLD,
) -> tf.Tensor:
    """Returns the tensors of all ranks, concatenated along the first dimension. The length of the
    first dimension may differ between ranks. All other dimensions must be equal. As in Horovod,
    backward gives each rank the mean of all ranks' gradients of its rows."""
    group = _horovod.group_of(process_set, group)
    names = _names.of_program(name)
    return _reductions.gathered(_with_rows(tensor, "allgather"), group, names, mean=True)


@_ops.in_sequence()
def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, *options: Any, **keywords: Any
) -> list[tf.Tensor]:
    """Gathers each tensor of a list like allgather(), and has the same arguments."""
    names = _numbered(name, len(tensors)) or [None] * len(tensors)
    return [allgather(t, own, *options, **keywords) for t, own in zip(tensors, names)]


def _with_rows(tensor: Any, call: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank == 0:
        raise ValueError(f"hccl: {call}: a scalar has no rows: use tf.reshape(tensor, [1])")
    return tensor


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set, *, group: str = hccl.WORLD,
) -> tf.Tensor:
    """Returns the root's tensor. root_rank is a rank of the world if there is a process set;
    otherwise it is a rank of the group. As in Horovod, backward gives the root the mean of all
    ranks' gradients, and the other ranks zeros."""
    names = _names.of_program(name)
    group, root = _horovod.group_of(process_set, group), _horovod.root_of(process_set, root_rank)
    return _differentiable.broadcast(tf.convert_to_tensor(tensor), root, group, names, mean=True)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int = 0, process_set: ProcessSet = global_process_set,
    inplace: bool = False, *, group: str = hccl.WORLD,
) -> Any:
    """Sets the variables to their values on the root. The variables must exist: a Keras model makes
    them when it is built. For a model of Keras 3 pass model.weights, because model.variables
    includes the seeds of dropout, and ranks with the same seeds would draw the same masks. In a
    graph of TensorFlow 1, returns the operation that sets the variables. inplace has no effect."""
    group, root = _horovod.group_of(process_set, group), _horovod.root_of(process_set, root_rank)
    variables = list(variables)
    values = _ops.broadcast(variables, root, group)
    assigned = [variable.assign(value) for variable, value in zip(variables, values)]
    return None if tf.executing_eagerly() else tf.group(*assigned)


def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set, *, group: str = hccl.WORLD,
) -> Any:
    """Sends splits[i] rows of the tensor, in order, to rank i. Returns the received rows in the
    order of the ranks, and the number of rows from each rank (int32). Without splits, sends the
    same number of rows to each rank, and returns only the received rows. Ranks may have different
    numbers of rows. InvalidArgumentError: the tensor has fewer rows than the sum of splits or,
    without splits, its rows cannot be divided evenly."""
    group, names = _horovod.group_of(process_set, group), _names.of_program(name)
    tensor, ranks = _with_rows(tensor, "alltoall"), _world.ranks(group)
    rows, rank = tf.shape(tensor, out_type=tf.int64)[0], _manage.get_rank_id(group)
    if splits is None:
        own = tf.repeat(rows // ranks, ranks)
        text = "hccl: alltoall: the rows cannot be divided evenly over the ranks: give splits"
        fits = tf.debugging.assert_equal(tf.reduce_sum(own), rows, text)
    else:
        given = tf.convert_to_tensor(splits)
        if not given.dtype.is_integer:
            raise TypeError(f"hccl: alltoall: splits are of {given.dtype.name}, not integers")
        own = tf.reshape(tf.cast(given, tf.int64), [ranks])
        text = "hccl: alltoall: the sum of splits is above the number of rows"
        fits = tf.debugging.assert_less_equal(tf.reduce_sum(own), rows, text)
    row = tf.shape(tensor, out_type=tf.int64)[1:]
    # Rows of [2, 3] and [3, 2] have as many elements, so ranks compare a digest of the shape, too:
    # the value of a polynomial, modulo 2**64.
    powers = tf.math.cumprod(tf.fill([tf.size(row) + 1], tf.constant(1000003, tf.int64)))
    digest = tf.reduce_sum(tf.concat([row, [1]], 0) * powers)
    with tf.control_dependencies([] if fits is None else [fits]):
        all_said = _ops.all_gather(tf.concat([own, [digest]], 0), ranks, group, names)
    said = tf.reshape(all_said, [ranks, ranks + 1])
    text = "hccl: alltoall: the ranks' tensors differ in a dimension after the first"
    same = tf.debugging.assert_equal(said[:, ranks], digest, text)
    with tf.control_dependencies([] if same is None else [same]):
        matrix = tf.identity(said[:, :ranks])
    sent = tf.reshape(tensor[: tf.reduce_sum(own)], [-1])
    flat = _differentiable.all_to_all(sent, matrix * tf.reduce_prod(row), rank, group, names)
    received = matrix[:, rank]
    result = tf.reshape(flat, tf.concat([[tf.reduce_sum(received)], row], 0))
    if tensor.shape.rank is not None:
        result = tf.ensure_shape(result, [None, *tensor.shape[1:]])
    return result if splits is None else (result, tf.cast(received, tf.int32))


def reducescatter(
    tensor: Any, op: Optional[str] = None, *, device_dense: str = "",
    compression: Any = Compression.none, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, group: str = hccl.WORLD,
) -> tf.Tensor:
    """Returns this rank's rows of the reduced tensor. If the rows cannot be divided evenly, the
    first ranks get one row more. As in Horovod, backward gathers the gradients of the rows. For
    sums, backward also multiplies the gradients by the number of ranks."""
    _horovod.check_devices(device_dense=device_dense)
    group, reduction = _horovod.group_of(process_set, group), _horovod.reduction(op)
    ranks, rank, names = _world.ranks(group), _manage.get_rank_id(group), _names.of_program(name)
    packed, context = compression.compress(
        _reductions.scaled(_with_rows(tensor, "reducescatter"), prescale_factor)
    )
    rows = tf.shape(packed)[0]
    least, more = rows // ranks, rows % ranks  # the first `more` ranks get one row more
    most = -(-rows // ranks)
    row = tf.shape(packed)[1:]
    rest = tf.reshape(packed[more * most :], tf.concat([[ranks - more, least], row], 0))
    padding = tf.concat([[[0, 0], [0, most - least]], tf.zeros([tf.size(row), 2], tf.int32)], 0)
    rest = tf.reshape(tf.pad(rest, padding), tf.concat([[(ranks - more) * most], row], 0))
    blocks = tf.concat([packed[: more * most], rest], 0)
    summed = "sum" if reduction == "mean" else reduction
    factors = _horovod.factors_text(prescale_factor, postscale_factor)
    averaged = "averaged" if reduction == "mean" else ""  # divided below
    with _names.comparing(factors), _names.comparing(averaged):
        part = _differentiable.reduce_scatter(blocks, summed, ranks, group, names, horovod=True)
    part = part[: least + tf.cast(rank < more, tf.int32)]
    if reduction == "mean":
        part = tf.divide(part, tf.cast(ranks, part.dtype))
    return _reductions.scaled(compression.decompress(part, context), postscale_factor)


@_ops.in_sequence()
def grouped_reducescatter(
    tensors: Sequence[Any], op: Optional[str] = None, *, name: Optional[str] = None, **options: Any
) -> list[tf.Tensor]:
    """Reduces each tensor of a list like reducescatter(), and has the same arguments."""
    names = _numbered(name, len(tensors)) or [None] * len(tensors)
    return [reducescatter(t, op, name=own, **options) for t, own in zip(tensors, names)]
