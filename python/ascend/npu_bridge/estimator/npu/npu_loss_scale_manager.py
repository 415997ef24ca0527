"""The managers that change the scale of a loss."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class FixedLossScaleManager:
    """A constant scale. enable_overflow_check: skips steps with an overflow."""

    def __init__(self, loss_scale: float, enable_overflow_check: bool = True) -> None:
        if loss_scale < 1:
            raise ValueError("loss scale must be at least 1.")
        self._scale = tf.convert_to_tensor(loss_scale, dtype=tf.float32)
        self.enable_overflow_check = enable_overflow_check

    def get_loss_scale(self) -> Any:
        return self._scale

    def update_loss_scale(self, finite_grads: Any) -> Any:
        return tf.no_op()

    def get_enable_overflow_check(self) -> bool:
        return self.enable_overflow_check


class ExponentialUpdateLossScaleManager:
    """Multiplies the scale by incr_ratio after incr_every_n_steps finite steps, and by decr_ratio
    after decr_every_n_nan_or_inf steps with an overflow. The scale never falls below 1."""

    def __init__(
        self,
        init_loss_scale: float,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2,
        decr_ratio: float = 0.8,
    ) -> None:
        variable = tf.compat.v1.Variable
        self._every, self._bad_every = incr_every_n_steps, decr_every_n_nan_or_inf
        self._grow, self._shrink = incr_ratio, decr_ratio
        self._scale = variable(
            float(init_loss_scale), name="loss_scale", trainable=False, use_resource=True
        )
        self._good = variable(0, name="good_steps", trainable=False, use_resource=True)
        self._bad = variable(0, name="bad_steps", trainable=False, use_resource=True)

    def get_loss_scale(self) -> Any:
        return self._scale.read_value()

    def get_enable_overflow_check(self) -> bool:
        return True

    def update_loss_scale(self, finite_grads: Any) -> Any:
        """Returns an op that counts this step and updates the scale."""
        zero = tf.constant(0)
        scale = self._scale.read_value()
        good = tf.where(finite_grads, self._good.read_value() + 1, zero)
        bad = tf.where(finite_grads, self._bad.read_value(), self._bad.read_value() + 1)
        grows, shrinks = good >= self._every, bad >= self._bad_every
        grown = scale * self._grow
        grown = tf.where(tf.math.is_finite(grown), grown, scale)
        shrunk = tf.maximum(scale * self._shrink, 1.0)
        scale = tf.where(grows, grown, tf.where(shrinks, shrunk, scale))
        over = tf.logical_or(grows, shrinks)
        return tf.group(
            self._scale.assign(scale),
            self._good.assign(tf.where(over, zero, good)),
            self._bad.assign(tf.where(over, zero, bad)),
        )
