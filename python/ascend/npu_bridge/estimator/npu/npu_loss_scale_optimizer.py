"""An optimizer of tf.train with loss scaling."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from hccl.tensorflow import _ops

from npu_bridge import _ranks
from npu_bridge.estimator.npu._wrapper import Wrapper


class NPULossScaleOptimizer(Wrapper):
    """Scales the loss, unscales the gradients, and skips a step if a gradient is not finite. With
    is_distributed, all ranks skip the step if a gradient of any rank is not finite."""

    def __init__(self, opt: Any, loss_scale_manager: Any, is_distributed: bool = False) -> None:
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        super().__init__(use_locking=False, name="NPULossScaleOptimizer")
        self._opt = opt
        self._manager = loss_scale_manager
        self._is_distributed = is_distributed

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> list:
        scale = self._manager.get_loss_scale()
        scaled = (lambda: loss() * scale) if callable(loss) else loss * tf.cast(scale, loss.dtype)
        pairs = self._opt.compute_gradients(scaled, *args, **kwargs)
        return [(None if g is None else self._unscaled(g, scale), v) for g, v in pairs]

    @staticmethod
    def _unscaled(gradient: Any, scale: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / tf.cast(scale, gradient.values.dtype)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(scale, gradient.dtype)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        pairs = list(grads_and_vars)
        check = getattr(self._manager, "get_enable_overflow_check", lambda: True)()
        if not check:
            return self._opt.apply_gradients(pairs, global_step, name)
        finite = self._all_finite([gradient for gradient, _ in pairs if gradient is not None])
        step = tf.cond(
            finite,
            lambda: tf.group(self._opt.apply_gradients(pairs, global_step, name)),
            lambda: tf.no_op(),
        )
        with tf.control_dependencies([step] if isinstance(step, tf.Operation) else [step.op]):
            update = self._manager.update_loss_scale(finite)
        return tf.group(step, update)

    def _all_finite(self, gradients: list) -> Any:
        flags = [
            tf.reduce_all(tf.math.is_finite(g.values if isinstance(g, tf.IndexedSlices) else g))
            for g in gradients
        ]
        finite = tf.reduce_all(tf.stack(flags))
        if not self._is_distributed or _ranks.size() <= 1:
            return finite
        bad = _ops.all_reduce(tf.cast(tf.logical_not(finite), tf.float32), "sum")
        return tf.equal(bad, 0)
