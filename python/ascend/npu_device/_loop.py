"""The loop size: the number of steps that one call of a training loop makes on an NPU.

Here TensorFlow runs the While of a loop function, with the While's own number of steps. An NPU
would run as many steps as the loop size. If the two numbers differ, a warning is logged once.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import tensorflow as tf
from absl import logging

from hccl.tensorflow import _log


def _of_environment() -> Optional[int]:
    text = os.environ.get("NPU_LOOP_SIZE")
    if text is None:
        return None
    try:
        size = int(text)
    except ValueError:
        return 1
    if size <= 0:
        _log.log(logging.ERROR, "Npu loop size must be greater than 0, got %d", size)
        return 1
    return size


_size: Optional[int] = _of_environment()  # None: not set


def set_npu_loop_size(loop_size: int) -> None:
    """Sets the loop size for later calls of training loops. A size that is not above 0 is logged as
    an error and changes nothing. TypeError: the size is not an integer."""
    global _size
    if isinstance(loop_size, bool) or not hasattr(loop_size, "__index__"):
        raise TypeError(f"loop_size: expected an int, not {type(loop_size).__name__}")
    size = loop_size.__index__()
    if size <= 0:
        _log.log(logging.ERROR, "Npu loop size must be greater than 0, got %d", size)
        return
    text = "Npu loop size is set to %d, it will take effect in the next training loop"
    _log.log(logging.INFO, text, size)
    _size = size


def size() -> int:
    return 1 if _size is None else _size


_Function: Any = type(tf.function(lambda: None))  # a class that TensorFlow saves and exports


class _Watched(_Function):
    """A tf.function that compares its number of steps with the loop size. A method bound to an
    object also has this class."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _size is not None:
            _compare(getattr(self, "__name__", "function"), [*args, *kwargs.values()])
        return _Function.__call__(self, *args, **kwargs)


def watched(function: Any) -> Any:
    """Changes a tf.function so that it compares its number of steps with the loop size. Returns the
    function."""
    if type(function) is _Function:
        function.__class__ = _Watched
    return function


@tf.autograph.experimental.do_not_convert
def _compare(name: str, arguments: list[Any]) -> None:
    if not any(isinstance(a, tf.data.Iterator) for a in arguments):
        return
    for argument in arguments:
        if isinstance(argument, int) or (tf.is_tensor(argument) and argument.dtype.is_integer):
            steps = tf.get_static_value(argument) if tf.is_tensor(argument) else argument
            if steps is None or getattr(steps, "shape", ()) != () or isinstance(steps, bool):
                continue
            if int(steps) != size():
                _log.once(
                    f"{name} runs {int(steps)} steps, its own number; the loop size is {size()}, "
                    f"and an NPU would run {size()}",
                    logging.WARNING,
                )
            else:
                _log.once(f"{name} runs {size()} steps a call")
            return
