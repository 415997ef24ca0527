"""Keras callbacks."""

from __future__ import annotations

from typing import Any, Optional

from hccl.tensorflow import broadcast_variables
from hccl.tensorflow._callbacks import Callback
from hccl.tensorflow._sessions import evaluated

from npu_bridge import _ranks


class NPUBroadcastGlobalVariablesCallback(Callback):
    """Sets the model's weights to their values on the root before the first batch. The seeds of
    dropout and the state of metrics, which are variables of a model of Keras 3, remain each rank's
    own."""

    def __init__(self, root_rank: int) -> None:
        super().__init__()
        self._root, self._done = root_rank, False

    def on_batch_begin(self, batch: int, logs: Optional[dict] = None) -> None:
        if self._done or _ranks.size() <= 1:
            return
        self._done = True
        evaluated(broadcast_variables(self.model.weights, self._root))
