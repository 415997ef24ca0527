"""Horovod's names for TensorFlow: the names of hccl.tensorflow, with Horovod's order of
arguments."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf
from hccl import tensorflow as _hccl
from hccl._horovod import absent
from hccl.horovod.elastic import ObjectState, runner
from hccl.tensorflow import *  # noqa: F403
from hccl.tensorflow import (  # noqa: F401  names that * does not import
    ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, local_rank_op, local_size_op,
    mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank_op, rocm_built, size_op,
)
from hccl.tensorflow._sessions import assign, evaluated, values_of

_GRADIENTS = "num_groups groups process_set scale_local_gradients"
_DEVICES = "device_dense device_sparse compression sparse_as_dense"


def in_order(function: Callable[..., Any], names: str) -> Callable[..., Any]:
    """Returns `function` with its positional arguments in the order of `names`. The first name is
    Horovod's name of the first argument."""
    first, *rest = order = names.split()

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if len(given) > len(order):
            raise TypeError(f"hccl: {function.__name__}: at most {len(order)} arguments")
        if given:
            return function(given[0], **dict(zip(rest, given[1:])), **named)
        if first not in named:
            raise TypeError(f"hccl: {function.__name__}: the argument {first} is missing")
        return function(named.pop(first), **named)

    return call


DistributedOptimizer = in_order(
    _hccl.DistributedOptimizer,
    f"optimizer name use_locking {_DEVICES} backward_passes_per_step op gradient_predivide_factor "
    f"average_aggregated_gradients {_GRADIENTS}",
)
DistributedGradientTape = in_order(
    _hccl.DistributedGradientTape,
    f"gradtape {_DEVICES} op gradient_predivide_factor {_GRADIENTS}",
)
allreduce = in_order(
    _hccl.allreduce,
    "tensor average device_dense device_sparse compression op prescale_factor postscale_factor "
    "name process_set ignore_name_scope",
)
grouped_allreduce = in_order(
    _hccl.grouped_allreduce,
    "tensors average device_dense device_sparse compression op prescale_factor postscale_factor "
    "process_set ignore_name_scope name",
)
reducescatter = in_order(
    _hccl.reducescatter,
    "tensor device_dense compression op name process_set ignore_name_scope prescale_factor "
    "postscale_factor",
)
grouped_reducescatter = in_order(
    _hccl.grouped_reducescatter,
    "tensors device_dense compression op process_set prescale_factor postscale_factor",
)


def broadcast_object_fn(root_rank: int = 0, *options: Any, **named: Any) -> Callable[[Any], Any]:
    """Returns a function that broadcasts its argument."""
    return lambda obj: _hccl.broadcast_object(obj, root_rank, *options, **named)


class TensorFlowKerasState(ObjectState):
    """The state of a Keras model, of its optimizer, and of Python objects that the program sets as
    attributes."""

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **objects: Any
    ) -> None:
        self.model, self.optimizer = model, optimizer or model.optimizer
        super().__init__(_hccl.broadcast_object, _hccl.rank, **objects)
        self._values = self._copy()

    def _variables(self) -> list[Any]:
        own = self.optimizer.variables if self.optimizer is not None else []
        return [*self.model.weights, *(own() if callable(own) else own)]

    def _copy(self) -> list[Any]:
        return values_of(self._variables())

    def save(self) -> None:
        self._values = self._copy()
        super().save()

    def restore(self) -> None:
        assign(self._variables(), self._values)
        super().restore()

    def sync(self) -> None:
        evaluated(_hccl.broadcast_variables(self._variables(), 0))
        super().sync()


elastic = ModuleType("horovod.tensorflow.elastic", "Elastic training in a world that stays.")
elastic.__dict__.update(
    run=runner(tf.errors.OpError),
    ObjectState=ObjectState,
    TensorFlowKerasState=TensorFlowKerasState,
    KerasState=TensorFlowKerasState,
)
_names = "TensorFlowState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback"
for _name in _names.split():
    elastic.__dict__[_name] = absent(f"elastic.{_name}", "commit() the state in the program")
SyncBatchNormalization = absent(
    "SyncBatchNormalization",
    "reduce the moments with allreduce in a layer of your own, or normalize without a batch, for "
    "example with LayerNormalization",
)
PartialDistributedOptimizer = absent(
    "PartialDistributedOptimizer",
    "give the local layers an optimizer of their own, and wrap the other with DistributedOptimizer",
)
PartialDistributedGradientTape = absent(
    "PartialDistributedGradientTape",
    "use tf.GradientTape, and reduce the gradients of layers that are not local with "
    "grouped_allreduce",
)
start_timeline = absent("start_timeline", "hccl.tensorflow.trace_at_exit writes traces")
stop_timeline = start_timeline
