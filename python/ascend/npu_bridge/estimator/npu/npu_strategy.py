"""NPUStrategy: one device in each process, with data divided over the ranks."""

from __future__ import annotations

import contextlib
from typing import Any

from tensorflow.python.distribute import distribute_lib, one_device_strategy

from npu_bridge import _ranks


class NPUExtended(one_device_strategy.OneDeviceExtended):
    @property
    def _num_replicas_in_sync(self) -> int:
        return _ranks.size()

    def _experimental_distribute_dataset(self, dataset: Any, *options: Any) -> Any:
        return dataset.shard(_ranks.size(), _ranks.rank())


class NPUStrategy(distribute_lib.StrategyV1):
    """tf.distribute's strategy for one device, except that a dataset is divided over the ranks and
    num_replicas_in_sync is the number of ranks. It does not reduce gradients. ValueError: the
    device is not "/cpu:0"."""

    def __init__(self, device: str = "/cpu:0") -> None:
        if device != "/cpu:0":
            raise ValueError('"device" only support "/cpu:0"')
        super().__init__(NPUExtended(self, device))

    def _scale_loss_for_estimator_enabled(self) -> Any:
        """Prevents an Estimator from dividing the loss by the number of ranks, because
        NPUDistributedOptimizer already computes the means of gradients."""
        return contextlib.nullcontext()
