"""Keras callbacks for data-parallel training."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import hccl
import numpy as np
import tensorflow as tf
from hccl.manage import api as _manage
from tensorflow.python.eager import context

from hccl import _horovod, _world
from hccl.tensorflow import _optimizers
from hccl.tensorflow._collectives import broadcast_variables, grouped_allreduce
from hccl.tensorflow._sessions import assign, evaluated, values_of


class Callback(tf.keras.callbacks.Callback):
    """A callback for `fit` of tf.keras. If that is Keras 3, the callback also has the methods that
    `fit` of the package tf_keras calls."""

    if not hasattr(tf.keras.callbacks.Callback, "_implements_train_batch_hooks"):
        _supports_tf_logs = False

        def _implements_train_batch_hooks(self) -> bool:
            return True

        def _implements_test_batch_hooks(self) -> bool:
            return False

        def _implements_predict_batch_hooks(self) -> bool:
            return False


class BroadcastGlobalVariablesCallback(Callback):
    """Sets the weights of the model and the variables of its optimizer to the values of one rank,
    once, after the first batch. By then all variables exist, and all ranks continue from the same
    state. The seeds of dropout, the state of metrics and local_variables remain each rank's own."""

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
        evaluated(broadcast_variables(list(own.values()), self._root, group=self._group))


class MetricAverageCallback(Callback):
    """Replaces the metrics of an epoch, numbers or arrays, by their means over the ranks. Callbacks
    that run after this one get the means."""

    def __init__(self, device: str = "", *, group: str = hccl.WORLD) -> None:
        super().__init__()
        _horovod.check_devices(device=device)
        self._group = group

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if not logs:
            return
        names = sorted(logs)
        with context.eager_mode():  # also while a graph of TensorFlow 1 trains
            values = [tf.constant(np.asarray(logs[name], np.float64)) for name in names]
            for name, mean in zip(names, grouped_allreduce(values, group=self._group)):
                logs[name] = float(mean) if mean.shape.rank == 0 else mean.numpy()


class LearningRateScheduleCallback(Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch) in the epochs from start_epoch to
    end_epoch - 1: at the beginning of each epoch or, with staircase=False, before each batch, with
    a fractional epoch. As in Horovod, a number m as multiplier means m ** (epoch - start_epoch).
    With momentum_correction, the momentum of SGD or RMSprop changes by the same factor as the
    learning rate. steps_per_epoch: the number of batches in an epoch, for staircase=False. The
    default is the number that `fit` knows; ValueError: `fit` knows none. The logs of an epoch
    contain the rate as "lr"."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("hccl: initial_lr is missing")
        self._initial, self._start, self._end = initial_lr, start_epoch, end_epoch
        self._staircase, self._corrects = staircase, momentum_correction
        self._steps, self._epoch = steps_per_epoch, 0
        if not callable(multiplier):
            factor = multiplier
            multiplier = lambda epoch: factor ** (epoch - start_epoch)  # noqa: E731
        self._multiplier = multiplier

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        if not self._staircase and not self._steps:
            self._steps = self.params.get("steps")
            if not self._steps:
                raise ValueError("hccl: the dataset does not tell its length: give steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if self._epoch < self._start or (self._end is not None and self._epoch >= self._end):
            return
        if self._staircase and batch:
            return
        before = self._rate()
        rate = self._initial * self._multiplier(
            self._epoch if self._staircase else self._epoch + batch / self._steps
        )
        self.model.optimizer.learning_rate = rate
        if self._corrects and before not in (0, rate):
            gathered = _gathered_momentum(self.model)
            assign(gathered, [value * (rate / before) for value in values_of(gathered)])

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return float(np.asarray(evaluated(self.model.optimizer.learning_rate)))


def _gathered_momentum(model: Any) -> list[Any]:
    """Returns the variables in which an optimizer with momentum sums past steps."""
    optimizer = _optimizers.with_inner(model.optimizer)[-1]
    if not hasattr(optimizer, "momentum"):
        return []
    if hasattr(optimizer, "get_slot"):  # tf.keras.optimizers.legacy
        if "momentum" not in optimizer.get_slot_names():
            return []
        return [optimizer.get_slot(v, "momentum") for v in model.trainable_variables]
    own = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None)
    return [variable for variable in own or () if variable is not None]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate in the first warmup_epochs, batch by batch, from initial_lr divided
    by the number of ranks to initial_lr. verbose: 1 prints the rate after the last of these
    epochs."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            ranks = _world.size()
            done = (epoch + 1 / self._steps) / warmup_epochs  # 1 at the end of the last epoch
            return (done * (ranks - 1) + 1) / ranks

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )
        self._verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._verbose and epoch == self._end - 1 and _manage.get_rank_id() == 0:
            print(f"\nEpoch {epoch + 1}: the warmup ends at a learning rate of {self._rate():g}")
