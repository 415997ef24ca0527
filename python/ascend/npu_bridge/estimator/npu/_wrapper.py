"""The base of optimizers that wrap another optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Wrapper(tf.compat.v1.train.Optimizer):
    """An optimizer with the state of the optimizer that it wraps."""

    _opt: Any

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.variables(*args, **kwargs)
