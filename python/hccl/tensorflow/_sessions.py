"""Optimizers, variables and hooks of TensorFlow 1's graphs and sessions."""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf

from hccl import _horovod
from hccl.tensorflow import _names
from hccl.tensorflow._collectives import broadcast_variables


def reducing(optimizer: Any, reduce: Callable[[list, list], list]) -> Any:
    """Changes an optimizer of tf.compat.v1.train so that its compute_gradients reduces gradients;
    minimize then does, too. Returns the same optimizer."""
    compute = optimizer.compute_gradients

    @functools.wraps(compute)
    def compute_gradients(*args: Any, **kwargs: Any) -> list:
        pairs = compute(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        gradients = reduce([gradient for gradient, _ in pairs], _names.of(variables))
        return list(zip(gradients, variables))

    optimizer.compute_gradients = compute_gradients
    return optimizer


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the operation that sets the global variables of a graph of TensorFlow 1 to their
    values on the root. RuntimeError in eager code, which has no global variables."""
    if tf.executing_eagerly():
        raise RuntimeError("hccl: eager code has no global variables: use broadcast_variables")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Sets the global variables to their values on the root when a session begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        _horovod.check_devices(device=device)
        self._root = root_rank
        self._operation: Any = None

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        if self._operation is None or self._operation.graph is not graph:
            self._operation = broadcast_global_variables(self._root)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._operation)
