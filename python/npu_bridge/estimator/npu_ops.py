"""npu_ops: TensorFlow's own ops by Ascend's names."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from npu_bridge import _ranks


def initialize_system(name: Optional[str] = None) -> Any:
    """An op that joins the ranks when it is run."""
    if tf.executing_eagerly():
        raise RuntimeError("tf.NPUInit() is not compatible with eager execution.")
    return tf.compat.v1.py_func(_join, [], [], stateful=True, name=name)


def shutdown_system(name: Optional[str] = None) -> Any:
    """An op; the ranks part when the program ends."""
    if tf.executing_eagerly():
        raise RuntimeError("tf.NPUShutdown() is not compatible with eager execution.")
    return tf.no_op(name=name)


def _join() -> None:
    _ranks.size()


def dropout(
    x: Any,
    keep_prob: Any,
    noise_shape: Any = None,
    seed: Optional[int] = None,
    name: Optional[str] = None,
) -> Any:
    """ValueError: a keep_prob that is not in (0, 1]."""
    x = tf.convert_to_tensor(x, name="x")
    if not x.dtype.is_floating:
        raise ValueError(f"x must be a floating point tensor, not {x.dtype}")
    if isinstance(keep_prob, (int, float)) and not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob must be in the range (0, 1], got {keep_prob}")
    return tf.compat.v1.nn.dropout(
        x, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=name
    )
