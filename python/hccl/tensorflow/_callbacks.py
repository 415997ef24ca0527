"""Keras callbacks for data-parallel training."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import hccl
import tensorflow as tf

from hccl.tensorflow import _horovod
from hccl.tensorflow._collectives import broadcast_variables, grouped_allreduce


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Sets the weights of the model and the variables of its optimizer to the values of one rank,
    once, after the first batch. By then all of them exist, and all ranks continue from the same
    state. The seeds of dropout and the state of metrics remain each rank's own, as do
    local_variables."""

    def __init__(
        self,
        root_rank: int = 0,
        device: str = "",
        local_variables: Sequence[Any] = (),
        *,
        group: str = hccl.WORLD,
    ) -> None:
        super().__init__()
        _horovod.check_devices(device=device)
        self._root, self._group, self._done = root_rank, group, False
        local = local_variables or ()
        self._local = {id(v) for v in (local if isinstance(local, (list, tuple)) else [local])}

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if self._done:
            return
        self._done = True
        optimizer = self.model.optimizer
        state = optimizer.variables
        # Keras 3's model.variables also has seeds and metrics.
        variables = [*self.model.weights, *(state() if callable(state) else state)]
        # Keras lists some variables twice.
        own = {id(v): v for v in variables if id(v) not in self._local}
        broadcast_variables(list(own.values()), self._root, group=self._group)


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their mean over the ranks, for the callbacks after it."""

    def __init__(self, device: str = "", *, group: str = hccl.WORLD) -> None:
        super().__init__()
        _horovod.check_devices(device=device)
        self._group = group

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if not logs:
            return
        names = sorted(logs)
        values = [tf.constant(float(logs[name]), tf.float64) for name in names]
        for name, value in zip(names, grouped_allreduce(values, group=self._group)):
            logs[name] = float(value)
