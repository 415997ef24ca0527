"""npu_aicore_ops, built from TensorFlow's own ops."""

from __future__ import annotations

import sys
from typing import Any, Optional

import tensorflow as tf

from npu_device._kept import absent

from npu_bridge.estimator.npu_ops import dropout as dropout_v3
from npu_bridge.estimator.npu_unary_ops import gelu

__all__ = [
    "centralization",
    "dropout_v3",
    "dropout_v4",
    "fast_gelu_v2",
    "layer_norm",
    "nonzero",
    "nonzerowithvalue",
    "prelu",
]

npu_aicore_ops = sys.modules[__name__]  # scripts import this name from the module npu_aicore_ops


def fast_gelu_v2(x: Any, name: Optional[str] = None) -> tf.Tensor:
    return tf.identity(gelu(x), name=name)


def centralization(x: Any, axes: Any, name: Optional[str] = None) -> tf.Tensor:
    """Returns x minus its mean over the axes."""
    x = tf.convert_to_tensor(x)
    return tf.subtract(x, tf.reduce_mean(x, axes, keepdims=True), name=name)


def prelu(x: Any, weight: Any) -> tf.Tensor:
    x = tf.convert_to_tensor(x)
    return tf.compat.v2.where(x > 0, x, x * weight)


def dropout_v4(
    x: Any,
    keep_prob: Any,
    noise_shape: Any = None,
    seed: Optional[int] = None,
    output_dtype: Any = tf.bool,
    name: Optional[str] = None,
) -> tf.Tensor:
    return dropout_v3(x, keep_prob, noise_shape, seed, name)


def nonzero(
    x: Any, transpose: bool = False, output_type: Any = tf.int64, name: Optional[str] = None
) -> tf.Tensor:
    """Returns the indices of elements that are not zero: [elements, dimensions], or transposed."""
    places = tf.cast(tf.compat.v2.where(tf.convert_to_tensor(x)), output_type)
    return tf.transpose(places, name=name) if transpose else tf.identity(places, name=name)


def nonzerowithvalue(
    x: Any, transpose: bool = False, output_type: Any = tf.int64, name: Optional[str] = None
) -> tuple:
    """Returns (the values that are not zero, their indices, their number)."""
    places = tf.compat.v2.where(tf.convert_to_tensor(x))
    values = tf.gather_nd(x, places)
    return values, nonzero(x, transpose, output_type, name), tf.size(values, out_type=tf.int64)


def layer_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    begin_norm_axis: int = 0,
    begin_params_axis: int = 0,
    epsilon: float = 1e-7,
    name: Optional[str] = None,
) -> list:
    """Returns [result, mean, variance], over the axes from begin_norm_axis on."""
    x = tf.convert_to_tensor(x)
    rank = x.shape.rank
    axes = list(range(begin_norm_axis % rank, rank))
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    result = tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon, name=name)
    return [result, mean, variance]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return absent(f"npu_aicore_ops.{name}", "it is an operator of an NPU alone")
