"""Keras callbacks for data-parallel training."""

from __future__ import annotations

from typing import Any, Optional

import hccl
import tensorflow as tf


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Sets the weights of the model and the variables of its optimizer to the values of one rank,
    once, after the first batch. By then all of them exist, and all ranks continue from the same
    state. The seeds of dropout and the state of metrics remain each rank's own."""

    def __init__(self, root_rank: int = 0, group: str = hccl.WORLD) -> None:
        super().__init__()
        self._root, self._group, self._done = root_rank, group, False

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if self._done:
            return
        self._done = True
        from hccl.tensorflow import broadcast_variables

        optimizer = self.model.optimizer
        state = optimizer.variables
        # Keras 3's model.variables also has seeds and metrics.
        variables = [*self.model.weights, *(state() if callable(state) else state)]
        own = {id(v): v for v in variables}  # Keras lists some variables twice
        broadcast_variables(list(own.values()), self._root, group=self._group)


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their mean over the ranks, for the callbacks after it."""

    def __init__(self, group: str = hccl.WORLD) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if not logs:
            return
        from hccl.tensorflow import grouped_allreduce

        names = sorted(logs)
        values = [tf.constant(float(logs[name]), tf.float64) for name in names]
        for name, value in zip(names, grouped_allreduce(values, group=self._group)):
            logs[name] = float(value)
