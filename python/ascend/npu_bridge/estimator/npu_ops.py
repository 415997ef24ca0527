"""npu_ops: TensorFlow's own ops with Ascend's names."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from npu_bridge import _ranks


def initialize_system(name: Optional[str] = None) -> Any:
    """Returns an op that joins the ranks when it runs."""
    if tf.executing_eagerly():
        raise RuntimeError("tf.NPUInit() is not compatible with eager execution.")
    return tf.numpy_function(_join, [], [], name=name)


def shutdown_system(name: Optional[str] = None) -> Any:
    """Returns an op without effect, because ranks leave when the program ends."""
    if tf.executing_eagerly():
        raise RuntimeError("tf.NPUShutdown() is not compatible with eager execution.")
    return tf.no_op(name=name)


NPUInit, NPUShutdown = initialize_system, shutdown_system


def _join() -> None:
    _ranks.size()


def dropout(
    x: Any,
    keep_prob: Any,
    noise_shape: Any = None,
    seed: Optional[int] = None,
    name: Optional[str] = None,
) -> Any:
    """TensorFlow's dropout. ValueError: keep_prob is not in (0, 1]."""
    x = tf.convert_to_tensor(x, name="x")
    if not x.dtype.is_floating:
        raise ValueError(f"x must be a floating point tensor, not {x.dtype}")
    if isinstance(keep_prob, (int, float)) and not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob must be in the range (0, 1], got {keep_prob}")
    return tf.compat.v1.nn.dropout(
        x, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=name
    )


def LARS(  # noqa: N802  Ascend's name
    inputs_w: Any,
    inputs_g: Any,
    weight_decay: Any,
    hyperpara: float = 0.001,
    epsilon: float = 0.00001,
    name: Optional[str] = None,
) -> list:
    """Returns new gradients for a list of weights. Adds the decay of the weights, and then scales
    each gradient by hyperpara * |w| / (|g| + weight_decay * |w| + epsilon)."""
    return [
        _lars(w, g, weight_decay, hyperpara, epsilon, None) for w, g in zip(inputs_w, inputs_g)
    ]


def LARSV2(  # noqa: N802  Ascend's name
    input_weight: Any,
    input_grad: Any,
    weight_decay: Any,
    learning_rate: Any,
    hyperpara: float = 0.001,
    epsilon: float = 0.00001,
    use_clip: bool = False,
    name: Optional[str] = None,
) -> Any:
    """LARS for one weight. With use_clip, the scale is divided by the learning rate and is at most
    1."""
    rate = learning_rate if use_clip else None
    return _lars(input_weight, input_grad, weight_decay, hyperpara, epsilon, rate)


def _lars(w: Any, g: Any, decay: Any, hyperpara: float, epsilon: float, rate: Any) -> Any:
    w, g = tf.convert_to_tensor(w), tf.convert_to_tensor(g)
    weight, gradient = tf.norm(w), tf.norm(g)
    scale = hyperpara * weight / (gradient + decay * weight + epsilon)
    if rate is not None:
        scale = tf.clip_by_value(scale / rate, 0.0, 1.0)
    return scale * (g + decay * w)


def basic_lstm_cell(
    x: Any,
    h: Any,
    c: Any,
    w: Any,
    b: Any,
    keep_prob: float = 1.0,
    forget_bias: float = 1.0,
    state_is_tuple: bool = True,
    activation: str = "tanh",
    name: Optional[str] = None,
) -> tuple:
    """Computes one step of an LSTM with the gates i, j, f, o in the columns of w. Returns (c, h, i,
    j, f, o, tanh(c))."""
    i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), w) + b, 4, axis=1)
    i, f, o, j = tf.sigmoid(i), tf.sigmoid(f + forget_bias), tf.sigmoid(o), tf.tanh(j)
    c = f * c + i * j
    tanh = tf.tanh(c)
    return c, o * tanh, i, j, f, o, tanh


def adam_apply_one_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    input4: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    add2_y: Any,
    name: Optional[str] = None,
) -> tuple:
    """Makes one step of Adam without bias correction. input0 is the gradient, input1 the second
    moment, input2 the first moment, input3 the weight, input4 the rate. mul0_x to mul3_x are beta1,
    1 - beta1, beta2, 1 - beta2; add2_y is epsilon. Assigns the moments and the weight, and returns
    them as (second, first, weight)."""
    inputs, muls = (input0, input1, input2, input3, input4), (mul0_x, mul1_x, mul2_x, mul3_x)
    return adam_apply_one_with_decay_assign(*inputs, *muls, 0.0, add2_y)


def adam_apply_one_with_decay_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    input4: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    mul4_x: Any,
    add2_y: Any,
    name: Optional[str] = None,
) -> tuple:
    """Like adam_apply_one_assign, but with weight decay: adds mul4_x times the weight to the
    update."""
    gradient, second, first, weight, rate = input0, input1, input2, input3, input4
    new_second = mul2_x * second + mul3_x * tf.square(gradient)
    new_first = mul0_x * first + mul1_x * gradient
    step = new_first / (tf.sqrt(new_second) + add2_y) + mul4_x * weight
    results = (new_second, new_first, weight - rate * step)
    kept = zip((second, first, weight), results)
    return tuple(
        old.assign(new) if hasattr(old, "assign") else tf.convert_to_tensor(new)
        for old, new in kept
    )
