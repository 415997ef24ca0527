"""Ops of an NPU that scripts call directly, built from TensorFlow's own ops."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf


def fast_gelu(x: Any, name: Optional[str] = None) -> tf.Tensor:
    return tf.nn.gelu(x, approximate=True, name=name)


def fast_gelu_grad(dy: Any, x: Any, name: Optional[str] = None) -> tf.Tensor:
    """Returns the gradient of fast_gelu at x, times dy."""
    x = tf.convert_to_tensor(x)
    inner = tf.cast(0.7978845608028654, x.dtype)  # sqrt(2 / pi)
    cubic = tf.cast(0.044715, x.dtype)
    tanh = tf.tanh(inner * (x + cubic * x * x * x))
    slope = inner * (1 + 3 * cubic * x * x)
    return tf.multiply(dy, 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * slope, name=name)


def drop_out_gen_mask_v3(
    shape: Any, prob: Any, seed: int = 0, seed2: int = 0, name: Optional[str] = None
) -> tf.Tensor:
    """Returns one byte for each element: 1 (keep) with probability `prob`, otherwise 0."""
    seeds = {} if seed == 0 and seed2 == 0 else {"seed": seed or seed2}
    kept = tf.random.uniform(shape, **seeds) < tf.cast(prob, tf.float32)
    return tf.cast(kept, tf.uint8, name=name)


def drop_out_do_mask_v3(x: Any, mask: Any, keep_prob: Any, name: Optional[str] = None) -> tf.Tensor:
    """Returns x / keep_prob where the mask is 1, else 0."""
    x = tf.convert_to_tensor(x)
    scaled = x / tf.cast(keep_prob, x.dtype)
    return tf.where(tf.reshape(mask, tf.shape(x)) != 0, scaled, tf.zeros_like(x), name=name)


def npu_get_float_status_v2(name: Optional[str] = None) -> tf.Tensor:
    """Always reports no overflow, because on CPUs the gradients contain infinities and NaN."""
    return tf.zeros([8], tf.int32, name=name)


def npu_clear_float_status_v2(name: Optional[str] = None) -> tf.Operation:
    return tf.no_op(name=name)
