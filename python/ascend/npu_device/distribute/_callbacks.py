"""Keras callbacks."""

from __future__ import annotations

from typing import Any, Optional

from hccl.tensorflow._callbacks import Callback
from hccl.tensorflow._sessions import evaluated

from npu_device import _device


class NPUBroadcastGlobalVariablesCallback(Callback):
    """Sets the model's weights to their values on the root, before the first batch, or after it if
    the model is built during that batch. The seeds of dropout and the state of metrics, which are
    variables of a model of Keras 3, remain each rank's own."""

    def __init__(self, root_rank: int) -> None:
        super().__init__()
        self._root, self._done = root_rank, False

    def on_train_batch_begin(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        self._broadcast()

    def _broadcast(self) -> None:
        if self._done or not self.model.built or _device.cluster_worker() is None:
            return
        self._done = True
        from npu_device.distribute import broadcast

        evaluated(broadcast(list(self.model.weights), self._root))


def npu_callbacks_append(callbacks_list: Any = ()) -> list:
    """Appends an NPUBroadcastGlobalVariablesCallback with root 0 to the list, or to a new list if
    the argument is not a list, and returns the list."""
    callbacks = callbacks_list if isinstance(callbacks_list, list) else []
    callbacks.append(NPUBroadcastGlobalVariablesCallback(0))
    return callbacks
