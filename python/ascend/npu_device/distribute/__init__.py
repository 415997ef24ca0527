"""npu.distribute: data-parallel training. Without open().as_default(), or with one worker, the
functions reduce and broadcast nothing. So the same script runs on one device."""

from __future__ import annotations

from typing import Any, Optional

import hccl
import tensorflow as tf
from absl import logging
from hccl._horovod import global_process_set
from hccl.tensorflow import _log, _ops, broadcast_variables, reduce_gradients
from hccl.tensorflow._optimizers import made, reducing

from npu_device import _device
from npu_device.distribute import hccl_ops
from npu_device.distribute._callbacks import (
    NPUBroadcastGlobalVariablesCallback,
    npu_callbacks_append,
)
from npu_device.distribute._grouping import grouping_broadcast, grouping_gradients_apply

__all__ = [
    "NPUBroadcastGlobalVariablesCallback",
    "all_reduce",
    "broadcast",
    "grouping_broadcast",
    "grouping_gradients_apply",
    "hccl_ops",
    "npu_callbacks_append",
    "npu_distributed_keras_optimizer_wrapper",
    "shard_and_rebatch_dataset",
]


def all_reduce(
    values: Any,
    reduction: str = "mean",
    fusion: int = 1,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> Any:
    """Reduces over all workers: "mean", "sum", "max", "min" or "prod". For a list or tuple, returns
    a list, in which None stays None; for any other argument, returns one tensor. Sums and means of
    IndexedSlices are sparse and have the rows of all workers. A mean divides by the number of all
    workers, also in a smaller group; a mean of integers is a float.

    fusion: 0 reduces each tensor separately; 1 reduces a whole list at once; 2 reduces tensors with
    the same fusion_id at once."""
    worker = _device.cluster_worker()
    if worker is None:
        _log.log(logging.INFO, "Skip all reduce as current process is not npu cluster worker")
        return values
    hccl_ops.check_fusion(fusion, fusion_id, (0, 1, 2))
    if isinstance(values, (list, tuple)):
        return reduce_values(list(values), reduction, group, fusion, worker.workers_num)
    return reduce_values([values], reduction, group, fusion, worker.workers_num)[0]


def reduce_values(
    values: list[Any],
    reduction: str,
    group: str,
    fusion: int,
    workers: int,
    names: Optional[list[str]] = None,
) -> list[Any]:
    """Reduces tensors. A mean divides by the number of workers, also in a smaller group."""
    if reduction != "mean" or group == hccl.WORLD:
        names = names or [_name(v) for v in values]
        if fusion != 0:
            return reduce_gradients(values, reduction, group, names)
        return [reduce_gradients([v], reduction, group, [n])[0] for v, n in zip(values, names)]
    sums = reduce_values(values, "sum", group, fusion, workers, names)
    return [None if s is None else _divide(s, workers) for s in sums]


def _divide(total: Any, workers: int) -> Any:
    if isinstance(total, tf.IndexedSlices):
        values = _divide(total.values, workers)
        return tf.IndexedSlices(values, total.indices, total.dense_shape)
    if total.dtype in _ops.FLOATS:
        return total * tf.cast(1 / workers, total.dtype)
    return tf.divide(total, tf.cast(workers, total.dtype))


def _name(value: Any) -> str:
    try:
        return str(value.name)
    except (AttributeError, ValueError):  # an eager tensor has none
        return "a gradient"


def broadcast(
    values: Any,
    root_rank: int = 0,
    fusion: int = 2,
    fusion_id: int = 0,
    group: str = hccl.WORLD,
) -> Any:
    """Sets a variable, or each variable of a list, to its value on the root. In a graph of
    TensorFlow 1, returns the operation that sets the variables."""
    if _device.cluster_worker() is None:
        _log.log(logging.INFO, "Skip broadcast as current process is not npu cluster worker")
        return None
    variables = list(values) if isinstance(values, (list, tuple)) else [values]
    return broadcast_variables(variables, root_rank, group=group)


def npu_distributed_keras_optimizer_wrapper(
    optimizer: Any,
    reduce_reduction: str = "mean",
    fusion: int = 1,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> Any:
    """Changes a Keras optimizer (Keras 2 or 3) so that apply_gradients first reduces the gradients
    over all workers. Returns the same object, or a new one if `optimizer` is a name."""
    optimizer = made(optimizer)

    def reduce(gradients: list, names: list) -> list:
        worker = _device.cluster_worker()
        if worker is None:
            return gradients
        hccl_ops.check_fusion(fusion, fusion_id, (0, 1, 2))
        return reduce_values(
            gradients, reduce_reduction, group, fusion, worker.workers_num, names
        )

    return reducing(optimizer, reduce, place=(global_process_set, group))


def shard_and_rebatch_dataset(dataset: Any, global_bs: int) -> tuple:
    """Returns this worker's part of the dataset and of the batch size. Element i belongs to worker
    i % workers. Call it before .batch(). ValueError: the batch size is not a multiple of the number
    of workers."""
    worker = _device.cluster_worker()
    if worker is None:
        return dataset, global_bs
    if global_bs % worker.workers_num != 0:
        raise ValueError(f"Batch size must be divisible by num npus: {worker.workers_num}")
    return (
        dataset.shard(worker.workers_num, worker.worker_id),
        global_bs // worker.workers_num,
    )
