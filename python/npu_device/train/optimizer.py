"""npu.train.optimizer: loss scaling whose finite test is made on all workers."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from npu_device import _device


class NpuLossScaleOptimizer:
    """A Keras optimizer whose loss is scaled, so that small gradients of 16 bits do not vanish:

        scaled = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))
        optimizer.apply_gradients(zip(gradients, variables))

    Where a gradient of any worker is not finite, no worker steps, and the scale is halved; it is
    doubled after dynamic_growth_steps finite steps. dynamic=False: the scale stays initial_scale.
    """

    def __init__(
        self,
        inner_optimizer: Any,
        dynamic: bool = True,
        initial_scale: Optional[float] = None,
        dynamic_growth_steps: Optional[int] = None,
    ) -> None:
        if not dynamic and initial_scale is None:
            raise ValueError('"initial_scale" must be specified if "dynamic" is False')
        if not dynamic and dynamic_growth_steps is not None:
            raise ValueError('"dynamic_growth_steps" must be None if "dynamic" is False')
        self.inner_optimizer = inner_optimizer
        self.dynamic = dynamic
        self.initial_scale = float(2**15 if initial_scale is None else initial_scale)
        self.dynamic_growth_steps = 2000 if dynamic_growth_steps is None else dynamic_growth_steps
        self._scale = tf.Variable(self.initial_scale, trainable=False, dtype=tf.float32)
        self._steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._finite = tf.Variable(True, trainable=False)

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":  # while it is copied
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)

    @property
    def loss_scale(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._scale)

    @property
    def dynamic_counter(self) -> tf.Variable:
        """How many finite steps there were since the scale changed."""
        return self._steps

    @property
    def last_step_finite(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._finite)

    def get_scaled_loss(self, loss: Any) -> Any:
        if callable(loss):
            return lambda: self.get_scaled_loss(loss())
        return loss * tf.cast(self._scale, loss.dtype)

    def get_unscaled_gradients(self, gradients: Any) -> list[Any]:
        inverse = 1.0 / self._scale
        return [None if g is None else g * tf.cast(inverse, g.dtype) for g in gradients]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        finite = self._all_finite([gradient for gradient, _ in pairs])
        self._finite.assign(finite)

        def step() -> tf.Tensor:
            self.inner_optimizer.apply_gradients(pairs, *args, **kwargs)
            return tf.constant(True)

        if not tf.executing_eagerly():
            self.inner_optimizer.build([variable for _, variable in pairs])
        applied = tf.cond(finite, step, lambda: tf.constant(False))
        self._update(finite)
        return applied

    def _all_finite(self, gradients: list[Any]) -> tf.Tensor:
        flags = [
            tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(g)))
            for g in gradients
            if g is not None
        ]
        bad = tf.cast(tf.logical_not(tf.reduce_all(tf.stack(flags))), tf.float32)
        if _device.cluster_worker() is not None:
            from npu_device.distribute import hccl_ops

            bad = hccl_ops.allreduce(bad, "sum", fusion=0)
        return tf.equal(bad, 0)

    def _update(self, finite: tf.Tensor) -> None:
        if not self.dynamic:
            return
        steps = tf.where(finite, self._steps + 1, tf.zeros_like(self._steps))
        grows = steps >= self.dynamic_growth_steps
        doubled = tf.where(tf.math.is_finite(self._scale * 2), self._scale * 2, self._scale)
        smaller = tf.maximum(self._scale / 2, 1.0)
        self._scale.assign(tf.where(finite, tf.where(grows, doubled, self._scale), smaller))
        self._steps.assign(tf.where(grows, tf.zeros_like(steps), steps))
