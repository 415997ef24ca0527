"""npu.train.optimizer: loss scaling that tests on all workers whether gradients are finite."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import tensorflow as tf
from hccl.tensorflow._optimizers import loss_scalers, made

from npu_device import _device


class NpuLossScaleOptimizer:
    """A Keras optimizer with a scaled loss, so that small 16-bit gradients do not become 0:

        scaled = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))
        optimizer.apply_gradients(zip(gradients, variables))

    If a gradient of any worker is not finite, no worker makes a step, and the scale is halved. The
    scale is doubled after dynamic_growth_steps finite steps. With dynamic=False the scale is always
    initial_scale. The object is an instance of Keras's LossScaleOptimizer (Keras 2 or 3), so that
    `fit` scales and unscales, and `compile` with mixed_float16 accepts the object unchanged.
    """

    def __new__(cls, inner_optimizer: Any, *arguments: Any, **options: Any) -> Any:
        return object.__new__(_scaling(type(made(inner_optimizer))))

    @property
    def last_step_finite(self: Any) -> tf.Tensor:
        return tf.convert_to_tensor(self._npu_finite)

    def _step(self, gradients: list, apply: Callable[[], Any]) -> tf.Tensor:
        finite = self._all_finite(gradients)
        self._npu_finite.assign(finite)

        def step() -> tf.Tensor:
            apply()
            return tf.constant(True)

        applied = tf.cond(finite, step, lambda: tf.constant(False))
        self._update(finite)
        return applied

    def _all_finite(self, gradients: list) -> tf.Tensor:
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
        scale, steps = map(tf.convert_to_tensor, (self._npu_scale, self._npu_steps))
        steps = tf.where(finite, steps + 1, tf.zeros_like(steps))
        grows = steps >= self.dynamic_growth_steps
        doubled = tf.where(tf.math.is_finite(scale * 2), scale * 2, scale)
        smaller = tf.maximum(scale / 2, 1.0)
        self._npu_scale.assign(tf.where(finite, tf.where(grows, doubled, scale), smaller))
        self._npu_steps.assign(tf.where(grows, tf.zeros_like(steps), steps))


class _Keras2:
    """Adds a test of all workers' gradients to Keras 2's LossScaleOptimizer, which is the next base
    class. LossScaleOptimizer itself tests only this worker's gradients and, with dynamic=False,
    none."""

    def __init__(self: Any, inner_optimizer: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(made(inner_optimizer), *arguments, **options)
        self._npu_finite = tf.Variable(True, trainable=False)

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        if not tf.executing_eagerly() and hasattr(self, "build"):
            self.build(variables)
        apply = self.inner_optimizer.apply_gradients
        return self._step(gradients, lambda: apply(pairs, *args, **kwargs))

    @property
    def _npu_scale(self: Any) -> Any:
        return self._loss_scale.current_loss_scale

    @property
    def _npu_steps(self: Any) -> Any:
        return self.dynamic_counter


class _Keras3:
    """Extends Keras 3's LossScaleOptimizer, which is the next base class, by a test of all workers'
    gradients, a constant scale (dynamic=False), and methods that scale and unscale explicitly."""

    def __init__(
        self: Any,
        inner_optimizer: Any,
        dynamic: bool = True,
        initial_scale: Optional[float] = None,
        dynamic_growth_steps: Optional[int] = None,
    ) -> None:
        if not dynamic and initial_scale is None:
            raise ValueError('"initial_scale" must be specified if "dynamic" is False')
        if not dynamic and dynamic_growth_steps is not None:
            raise ValueError('"dynamic_growth_steps" must be None if "dynamic" is False')
        super().__init__(  # type: ignore[call-arg]
            made(inner_optimizer),
            initial_scale=float(2**15 if initial_scale is None else initial_scale),
            dynamic_growth_steps=2000 if dynamic_growth_steps is None else dynamic_growth_steps,
        )
        self.dynamic = dynamic
        self._npu_finite = tf.Variable(True, trainable=False)
        self._npu_fit_scales = False

    @property
    def _npu_scale(self: Any) -> Any:
        return self.dynamic_scale if self.built else self.initial_scale

    @property
    def _npu_steps(self: Any) -> Any:
        return self.step_counter if self.built else 0

    @property
    def loss_scale(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._npu_scale, tf.float32)

    @property
    def dynamic_counter(self) -> tf.Tensor:
        """The number of finite steps since the last change of the scale."""
        return tf.convert_to_tensor(self._npu_steps)

    def get_scaled_loss(self, loss: Any) -> Any:
        if callable(loss):
            return lambda: self.get_scaled_loss(loss())
        return loss * tf.cast(self.loss_scale, loss.dtype)

    def get_unscaled_gradients(self, gradients: Any) -> list[Any]:
        inverse = 1.0 / self.loss_scale
        return [None if g is None else g * tf.cast(inverse, g.dtype) for g in gradients]

    def scale_loss(self, loss: Any) -> Any:
        self._npu_fit_scales = True
        return self.get_scaled_loss(loss)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        gradients = list(grads)
        if not self.built:
            self.build(trainable_variables)
        if self._npu_fit_scales:
            self._npu_fit_scales = False
            gradients = self.get_unscaled_gradients(gradients)
        apply = self.inner_optimizer.apply
        return self._step(gradients, lambda: apply(gradients, trainable_variables))


@functools.lru_cache(maxsize=None)
def _scaling(kind: type) -> type:
    """Returns a subclass of Keras's loss-scaling optimizer, with the same class name, because Keras
    saves the optimizer by that name. Keras 2 has two such classes: for legacy optimizers and for
    all others."""
    base, *others = loss_scalers(kind)
    if not hasattr(kind, "apply"):
        base = next(each for each in others if any(issubclass(kind, b) for b in each.__bases__))
    additions = _Keras3 if hasattr(kind, "apply") else _Keras2
    own = {"__module__": base.__module__}
    return type(base)(base.__name__, (NpuLossScaleOptimizer, additions, base), own)
