"""Horovod's names for Keras: the names for TensorFlow, with the order of arguments of
horovod.keras. In a graph of TensorFlow 1 the collectives return values, computed in Keras's
session."""

import functools
from typing import Any, Callable

from hccl import tensorflow as _hccl
from hccl.horovod.tensorflow import *  # noqa: F403
from hccl.horovod.tensorflow import elastic, evaluated, in_order  # noqa: F401
from hccl.tensorflow import callbacks, load_model  # noqa: F401


def _now(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that evaluates the result of `function`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return evaluated(function(*args, **kwargs))

    return call


DistributedOptimizer = in_order(
    _hccl.DistributedOptimizer,
    "optimizer name device_dense device_sparse compression sparse_as_dense "
    "gradient_predivide_factor op backward_passes_per_step average_aggregated_gradients num_groups "
    "groups process_set scale_local_gradients",
)
allreduce = in_order(
    _now(_hccl.allreduce),
    "value name average prescale_factor postscale_factor op compression process_set",
)
allgather = in_order(_now(_hccl.allgather), "value name process_set")
broadcast = in_order(_now(_hccl.broadcast), "value root_rank name process_set")
reducescatter = in_order(_now(_hccl.reducescatter), "value name op process_set")
broadcast_global_variables = _now(_hccl.broadcast_global_variables)
load_model = in_order(
    load_model, "filepath custom_optimizers custom_objects compression legacy_opts"
)
__all__ = [name for name in globals() if not name.startswith("_")]
