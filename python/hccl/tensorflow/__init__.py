"""TensorFlow on hccl, for programs without Ascend's names: data-parallel training with tf.keras or
with custom loops.

    import hccl.tensorflow as hvd

    hvd.init()                                        # mpirun -np 4 python train.py
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss)
    model.fit(dataset, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])

The functions have the names, arguments and results of Horovod. All ranks must call the same
collectives in the same order; a difference is an InvalidArgumentError on all ranks. If a rank dies,
the others get an InternalError that names it. Collectives of eager code and of a tf.function run in
the order of the program.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import hccl
import tensorflow as tf
from hccl.manage import api as _manage
from hccl.tensorflow import _callbacks as callbacks
from hccl.tensorflow import _fusion, _names, _ops, _world
from hccl.tensorflow._callbacks import BroadcastGlobalVariablesCallback, MetricAverageCallback
from hccl.tensorflow._fusion import trace_at_exit
from hccl.tensorflow._optimizers import reducing
from hccl.tensorflow._world import join, joined, leave

__all__ = [
    "Average",
    "BroadcastGlobalVariablesCallback",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "MetricAverageCallback",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_variables",
    "callbacks",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
    "trace_at_exit",
]

Average, Sum, Max, Min, Product = "mean", "sum", "max", "min", "prod"


def init() -> None:
    """Joins the ranks that mpirun, torchrun, Slurm or a rank table defines; without any of them, a
    world of one rank. A second call does nothing."""
    join()


def shutdown() -> None:
    """Leaves the world. At the end of the program this happens automatically."""
    leave()


def is_initialized() -> bool:
    return joined()


def rank() -> int:
    return _manage.get_rank_id()


def size() -> int:
    return _manage.get_rank_size()


def local_rank() -> int:
    """The number of this rank on its host."""
    return _manage.get_local_rank_id()


def local_size() -> int:
    return _manage.get_local_rank_size()


def allreduce(
    tensor: Any, op: str = Average, *, group: str = hccl.WORLD, name: Optional[str] = None
) -> tf.Tensor:
    """Reduces over all ranks of the group, element by element. A mean of integers is a float. An
    IndexedSlices becomes a dense tensor. Backward averages the incoming gradient if op is the mean;
    otherwise it sums it. name: the same on all ranks, for errors and traces; ranks that give
    different names get an error."""
    return reduce_list([tensor], op, group, _names.of_program(name))[0]


def grouped_allreduce(
    tensors: Sequence[Any], op: str = Average, *, group: str = hccl.WORLD
) -> list[Any]:
    """Reduces a list of tensors at once; None stays None."""
    return reduce_list(tensors, op, group)


@tf.autograph.experimental.do_not_convert
def reduce_list(
    tensors: Sequence[Any],
    reduction: str,
    group: str = hccl.WORLD,
    names: Sequence[str] = (),
) -> list[Any]:
    """Returns the reduced list; None stays None. names: the tensors' names in errors and traces,
    which ranks compare if they are _names.Name."""
    if reduction not in (Average, Sum, Max, Min, Product):
        raise ValueError(f'hccl: there is no reduction "{reduction}"')
    there = [i for i, tensor in enumerate(tensors) if tensor is not None]
    values = [tf.convert_to_tensor(tensors[i]) for i in there]
    if not values:
        return list(tensors)
    ranks = _world.ranks(group)
    mean = reduction == Average
    op = Sum if mean else reduction
    scale = 1 / ranks if mean else 1.0
    called = [str(i) for i in there] if not names else [names[i] for i in there]
    if _fusion.wanted(values, reduction, group):
        reduced = _fusion.reduce(values, mean, called)
    elif len(values) == 1:
        floats = values[0].dtype in _ops.FLOATS
        reduced = [_ops.all_reduce(values[0], op, group, scale if floats else 1.0, called)]
    else:
        reduced = _ops.grouped_all_reduce(values, op, group, scale, called)
    results = list(tensors)
    for i, tensor in zip(there, reduced):
        if mean and tensor.dtype not in _ops.FLOATS:
            tensor = tf.divide(tensor, tf.cast(ranks, tensor.dtype))
        results[i] = tensor
    return results


def reduce_gradients(
    gradients: Sequence[Any],
    reduction: str,
    group: str = hccl.WORLD,
    names: Sequence[str] = (),
    sparse_as_dense: bool = False,
) -> list[Any]:
    """As reduce_list, but sums and means of IndexedSlices stay sparse: they have the rows of all
    ranks, which may have different numbers of rows."""
    if sparse_as_dense or reduction not in (Average, Sum):
        return reduce_list(gradients, reduction, group, names)
    sparse = [isinstance(gradient, tf.IndexedSlices) for gradient in gradients]
    dense = [None if own else gradient for own, gradient in zip(sparse, gradients)]
    results = reduce_list(dense, reduction, group, names)
    ranks = _world.ranks(group)
    for i, gradient in enumerate(gradients):
        if not sparse[i]:
            continue
        values = _gathered(gradient.values, group, names[i : i + 1])
        if reduction == Average:
            values = tf.divide(values, tf.cast(ranks, values.dtype))
        indices = _gathered(gradient.indices, group, names[i : i + 1])
        results[i] = tf.IndexedSlices(values, indices, gradient.dense_shape)
    return results


def allgather(
    tensor: Any, *, group: str = hccl.WORLD, name: Optional[str] = None
) -> tf.Tensor:
    """Returns the tensors of all ranks, concatenated along the first dimension, whose length may
    differ between ranks. All other dimensions must be equal. name: as in allreduce."""
    return _gathered(tf.convert_to_tensor(tensor), group, _names.of_program(name))


def _gathered(tensor: tf.Tensor, group: str, names: Sequence[str]) -> tf.Tensor:
    ranks = _world.ranks(group)
    rows = tf.shape(tensor, out_type=tf.int64)[:1]
    counts = _ops.all_gather(rows, ranks, group, names)
    most = tf.reduce_max(counts)
    padding = tf.concat([[[0, most - rows[0]]], tf.zeros([tf.rank(tensor) - 1, 2], tf.int64)], 0)
    padded = _with_gradient(
        lambda own: _ops.all_gather(own, ranks, group, names),
        lambda gradient: _ops.reduce_scatter(gradient, "sum", ranks, group),
        tf.pad(tensor, padding),
    )
    parts = tf.reshape(padded, tf.concat([[ranks, -1], tf.shape(tensor)[1:]], 0))
    return tf.boolean_mask(parts, tf.sequence_mask(counts, most))


def broadcast(
    tensor: Any, root_rank: int, *, group: str = hccl.WORLD, name: Optional[str] = None
) -> tf.Tensor:
    """Returns the root's tensor. name: as in allreduce."""
    names = _names.of_program(name)

    def to_root(gradient: Any) -> Any:
        total = _ops.reduce(gradient, "sum", root_rank, group)
        if _manage.get_rank_id(group) == root_rank:
            return total
        with tf.control_dependencies([total]):  # the root waits for this rank
            return tf.zeros_like(gradient)

    return _with_gradient(
        lambda own: _ops.broadcast([own], root_rank, group, names)[0],
        to_root,
        tf.convert_to_tensor(tensor),
    )


def _with_gradient(collective: Any, gradient: Any, tensor: Any) -> Any:
    """Adds a gradient to a collective whose op, as in Ascend's hccl_ops, has none."""
    return tf.custom_gradient(lambda own: (collective(own), gradient))(tensor)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int = 0, *, group: str = hccl.WORLD
) -> None:
    """Sets the variables to their values on the root. Call it after the variables were made: a
    Keras model has variables after it is built. For a model of Keras 3 give model.weights: its
    variables include the seeds of dropout, and ranks with the same seeds draw the same masks."""
    variables = list(variables)
    values = _ops.broadcast(variables, root_rank, group)
    for variable, value in zip(variables, values):
        variable.assign(value)


def DistributedOptimizer(  # noqa: N802  a class in Horovod
    optimizer: Any, op: str = Average, *, group: str = hccl.WORLD, sparse_as_dense: bool = False
) -> Any:
    """Changes a Keras optimizer (Keras 2 or 3), or makes one by name, so that it reduces gradients
    over the ranks before it applies them, in `fit` and in custom loops. Returns the same object.
    Sparse gradients, of embeddings, become those of all ranks' rows; sparse_as_dense: become
    dense, which is faster if the ranks' rows are most of the table."""
    optimizer = tf.keras.optimizers.get(optimizer)
    if getattr(optimizer, "_hccl_reduces", False):
        raise ValueError("hccl: this optimizer reduces its gradients already")
    optimizer._hccl_reduces = True

    def reduce(gradients: list, names: list) -> list:
        return reduce_gradients(gradients, op, group, names, sparse_as_dense)

    return reducing(optimizer, reduce)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] = (),
    custom_objects: Optional[dict[str, Any]] = None,
    op: str = Average,
    *,
    group: str = hccl.WORLD,
    **options: Any,
) -> Any:
    """Loads a Keras model whose optimizer then reduces its gradients, as DistributedOptimizer does.
    A model that was saved with a DistributedOptimizer and loaded by Keras's load_model gets an
    optimizer that does not; on several ranks its first step is a RuntimeError."""
    known = {**{each.__name__: each for each in custom_optimizers or ()}, **(custom_objects or {})}
    model = tf.keras.models.load_model(filepath, custom_objects=known, **options)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, op, group=group)
    return model


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() reduces gradients over the ranks."""

    def __init__(
        self,
        tape: tf.GradientTape,
        op: str = Average,
        *,
        group: str = hccl.WORLD,
        sparse_as_dense: bool = False,
    ):
        self._tape, self._op, self._group = tape, op, group
        self._dense = sparse_as_dense

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._tape.__exit__(*exception)

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = self._tape.gradient(target, sources, *args, **kwargs)
        flat, names = tf.nest.flatten(gradients), _names.of(tf.nest.flatten(sources))
        reduced = reduce_gradients(flat, self._op, self._group, names, self._dense)
        return tf.nest.pack_sequence_as(gradients, reduced)
