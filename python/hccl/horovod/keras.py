"""Horovod's names for Keras: the names for TensorFlow, with the order of arguments of
horovod.keras."""

from hccl import tensorflow as _hccl
from hccl.horovod.tensorflow import *  # noqa: F403
from hccl.horovod.tensorflow import elastic, in_order  # noqa: F401
from hccl.tensorflow import callbacks, load_model  # noqa: F401

DistributedOptimizer = in_order(
    _hccl.DistributedOptimizer,
    "name device_dense device_sparse compression sparse_as_dense gradient_predivide_factor op "
    "backward_passes_per_step average_aggregated_gradients num_groups groups process_set "
    "scale_local_gradients",
)
allreduce = in_order(
    _hccl.allreduce, "name average prescale_factor postscale_factor op compression process_set"
)
load_model = in_order(load_model, "custom_optimizers custom_objects compression legacy_opts")
__all__ = [name for name in globals() if not name.startswith("_")]
