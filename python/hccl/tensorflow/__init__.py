"""TensorFlow on hccl, for programs without Ascend's names: data-parallel training with tf.keras or
with custom loops.

    import hccl.tensorflow as hvd

    hvd.init()                                        # mpirun -np 4 python train.py
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss)
    model.fit(dataset, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])

The functions have the names, arguments and results of Horovod. All ranks must call the same
collectives in the same order; if they do not, all ranks get an InvalidArgumentError. If a rank
dies, the others get an InternalError that names the dead rank. Collectives of eager code, of a
tf.function and of a session of TensorFlow 1 run in the order of the program.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import hccl
import tensorflow as tf
from hccl import _horovod
from hccl._horovod import (
    ProcessSet, add_process_set, global_process_set, init, is_initialized, local_rank, local_size,
    no, rank, remove_process_set, shutdown, size,
)
from hccl.tensorflow import _callbacks as callbacks
from hccl.tensorflow import _names, _ops, _optimizers, _reductions, _sessions
from hccl.tensorflow._callbacks import (
    BroadcastGlobalVariablesCallback, LearningRateScheduleCallback, LearningRateWarmupCallback,
    MetricAverageCallback,
)
from hccl.tensorflow._collectives import (
    allgather, allreduce, alltoall, broadcast, broadcast_variables, grouped_allgather,
    grouped_allreduce, grouped_reducescatter, reducescatter,
)
from hccl.tensorflow._compression import Compression
from hccl.tensorflow._fusion import trace_at_exit
from hccl.tensorflow._objects import allgather_object, broadcast_object
from hccl.tensorflow._reductions import gradient_reducer, reduce_gradients, reduce_list
from hccl.tensorflow._sessions import BroadcastGlobalVariablesHook, broadcast_global_variables
from hccl.tensorflow._sums import Sums

__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesCallback", "BroadcastGlobalVariablesHook",
    "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "LearningRateScheduleCallback", "LearningRateWarmupCallback", "Max",
    "MetricAverageCallback", "Min", "ProcessSet", "Product", "Sum", "add_process_set",
    "allgather", "allgather_object", "allreduce", "alltoall", "broadcast",
    "broadcast_global_variables", "broadcast_object", "broadcast_variables", "callbacks",
    "cross_rank", "cross_size", "global_process_set", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join", "load_model",
    "local_rank", "local_size", "rank", "reduce_gradients", "reduce_list", "reducescatter",
    "remove_process_set", "shutdown", "size", "trace_at_exit",
]

Average, Sum, Max, Min, Product = _horovod.REDUCTIONS
Adasum = "adasum"  # the collectives reject it and give the reason


def _op(number: Callable[[], int]) -> Callable[..., tf.Tensor]:
    """Returns a function that returns the number as a tensor."""
    return lambda name=None: tf.constant(number(), name=name)


rank_op, size_op, local_rank_op, local_size_op = map(_op, (rank, size, local_rank, local_size))

mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = no
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = no
_PLACES = (
    "ranks do not know each other's hosts: on all ranks call "
    "allgather_object((local_rank(), local_size())), and count in its result"
)
cross_rank = _horovod.absent("cross_rank", _PLACES)
cross_size = _horovod.absent("cross_size", _PLACES)
is_homogeneous = _horovod.absent("is_homogeneous", _PLACES)


_STEPS = (
    "join() needs the same number of steps on all ranks: "
    "dataset.take(int(hvd.allreduce(batches, hvd.Min)))"
)


def join() -> Any:
    """Waits until all ranks have called join(), each after the same number of steps, and returns
    the number of the last rank; in a graph, a tensor of it. If some rank still trains, all ranks
    get an InvalidArgumentError that names both calls. Ranks do not negotiate, so a joined rank
    cannot contribute zeros to the collectives of a rank with more batches."""
    names = _names.of_program("hvd.join")
    try:
        last = _ops.all_reduce(tf.constant(size() - 1), "max", names=names)
    except tf.errors.InvalidArgumentError as error:
        raise tf.errors.InvalidArgumentError(None, None, f"{error.message}. {_STEPS}") from error
    return int(last) if tf.executing_eagerly() else last


def DistributedOptimizer(  # noqa: N802  a class in Horovod
    optimizer: Any, op: Optional[str] = None, *, use_locking: bool = False,
    backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False,
    sparse_as_dense: bool = False, group: str = hccl.WORLD, **options: Any,
) -> Any:
    """Changes an optimizer so that it reduces gradients over the ranks before it applies them, in
    `fit` and in custom loops, and returns the same object. optimizer: an optimizer of Keras 2 or 3,
    the name of such an optimizer, or an optimizer of tf.compat.v1.train. The last kind reduces in
    compute_gradients.

    Sparse gradients, such as those of embeddings, stay sparse and get the rows of all ranks.
    sparse_as_dense: makes them dense, which is faster if the ranks' rows are most of the table.
    backward_passes_per_step (for Keras): the optimizer makes one step for this many calls, with the
    sums of their gradients, or with the means if average_aggregated_gradients is set. options:
    name, device_dense, device_sparse, compression, gradient_predivide_factor, num_groups, groups
    (all gradients are one group), process_set, scale_local_gradients. An unsupported value raises
    NotImplementedError or ValueError; the text names the keyword."""
    reduce = gradient_reducer(op, group, sparse_as_dense=sparse_as_dense, **options)
    place = (options.get("process_set", global_process_set), group)
    if use_locking:
        _horovod.refuse("use_locking", True, "give it to the optimizer inside")
    if backward_passes_per_step < 1:
        raise ValueError(f"hccl: backward_passes_per_step={backward_passes_per_step}: is below 1")
    of_session = isinstance(optimizer, tf.compat.v1.train.Optimizer)
    if not of_session:
        optimizer = _optimizers.made(optimizer)
    if getattr(optimizer, "_hccl_reduces", False):
        raise ValueError("hccl: this optimizer reduces its gradients already")
    sums = None
    if backward_passes_per_step > 1:
        if of_session:
            why = "optimizers of tf.compat.v1.train do not add gradients up; those of Keras do"
            _horovod.refuse("backward_passes_per_step", backward_passes_per_step, why)
        counted = _optimizers.with_inner(optimizer)[-1]
        average = average_aggregated_gradients
        sums = Sums(backward_passes_per_step, average, sparse_as_dense, counted)
    optimizer._hccl_reduces = True
    if of_session:
        return _sessions.reducing(optimizer, reduce, place)
    return _optimizers.reducing(optimizer, reduce, sums, place)


def load_model(
    filepath: Any, custom_optimizers: Optional[Sequence[type]] = None,
    custom_objects: Optional[dict[str, Any]] = None, op: Optional[str] = None, *,
    compression: Any = Compression.none, legacy_opts: bool = False, group: str = hccl.WORLD,
    **options: Any,
) -> Any:
    """Loads a Keras model and makes its optimizer a DistributedOptimizer. legacy_opts has no
    effect. options: the options of Keras's load_model. If Keras's own load_model loads a model that
    was saved with a DistributedOptimizer, the model does not reduce, and on several ranks its first
    step raises a RuntimeError."""
    known = {**{each.__name__: each for each in custom_optimizers or ()}, **(custom_objects or {})}
    model = tf.keras.models.load_model(filepath, custom_objects=known, **options)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, op, group=group, compression=compression)
    return model


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() reduces gradients over the ranks. A DistributedOptimizer
    of the same ranks does not reduce these gradients again, but it does reduce new tensors that the
    program computes from them. options: as for DistributedOptimizer."""

    def __init__(
        self,
        gradtape: tf.GradientTape,
        op: Optional[str] = None,
        *,
        group: str = hccl.WORLD,
        **options: Any,
    ) -> None:
        self._tape, self._reduce = gradtape, gradient_reducer(op, group, **options)
        self._place = (options.get("process_set", global_process_set), group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._tape.__exit__(*exception)

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE, use_generic_names: bool = False,
    ) -> Any:
        """Like gradient() of tf.GradientTape. use_generic_names has no effect, because ranks
        compare names without TensorFlow's numbers, which may differ between processes."""
        gradients = self._tape.gradient(target, sources, output_gradients, unconnected_gradients)
        names = _names.of(tf.nest.flatten(sources))
        reduced = self._reduce(tf.nest.flatten(gradients), names)
        _reductions.mark_reduced(reduced, self._place)
        return tf.nest.pack_sequence_as(gradients, reduced)
