"""tf.function for npu_device."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import tensorflow as tf

from hccl.tensorflow import _log

from npu_device import _loop

_tf_function = tf.function


def npu_compat_function(func: Optional[Callable] = None, *args: Any, **kwargs: Any) -> Any:
    """tf.function, but ignores jit_compile, because XLA does not support the collectives."""
    for name in ("jit_compile", "experimental_compile"):
        if kwargs.pop(name, None):
            _log.once(f"{name} is dropped: XLA has no collectives")
    if func is None:
        return functools.partial(npu_compat_function, *args, **kwargs)
    return _loop.watched(_tf_function(func, *args, **kwargs))
