"""npu.train.optimizer: loss scaling that tests on all workers whether gradients are finite."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import tensorflow as tf
from hccl.tensorflow._optimizers import loss_scalers

from npu_device import _device


class NpuLossScaleOptimizer:
    """A Keras optimizer with a scaled loss, so that small 16-bit gradients do not become 0:

        scaled = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))
        optimizer.apply_gradients(zip(gradients, variables))

    If a gradient of any worker is not finite, no worker steps, and the scale is halved. The scale
    is doubled after dynamic_growth_steps finite steps. With dynamic=False it stays initial_scale.
    `fit` scales and unscales. With Keras 2 the object is a LossScaleOptimizer of Keras's, which
    `compile` with mixed_float16 takes as it is. With Keras 3 it is the inner optimizer itself,
    changed, so that Keras accepts it.
    """

    def __new__(cls, inner_optimizer: Any, *arguments: Any, **options: Any) -> Any:
        optimizer = tf.keras.optimizers.get(inner_optimizer)
        kind = type(optimizer)
        if not hasattr(kind, "apply"):
            return object.__new__(_scaling_keras_2(kind))
        # The `apply` of a wrapper, which reduces the gradients, or the `apply` of the class.
        optimizer._npu_within = vars(optimizer).pop("apply", None) or optimizer.apply
        object.__setattr__(optimizer, "__class__", _scaling(kind))
        return optimizer

    @property
    def last_step_finite(self: Any) -> tf.Tensor:
        return tf.convert_to_tensor(self._npu_finite)

    def _step(self, gradients: list, variables: list, apply: Callable[[], Any]) -> tf.Tensor:
        finite = self._all_finite(gradients)
        self._npu_finite.assign(finite)

        def step() -> tf.Tensor:
            apply()
            return tf.constant(True)

        if not tf.executing_eagerly() and hasattr(self, "build"):
            self.build(variables)
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
        scale = self._npu_scale
        steps = tf.where(finite, self._npu_steps + 1, tf.zeros_like(self._npu_steps))
        grows = steps >= self.dynamic_growth_steps
        doubled = tf.where(tf.math.is_finite(scale * 2), scale * 2, scale)
        smaller = tf.maximum(scale / 2, 1.0)
        scale.assign(tf.where(finite, tf.where(grows, doubled, scale), smaller))
        self._npu_steps.assign(tf.where(grows, tf.zeros_like(steps), steps))


class _Keras2:
    """Adds to Keras 2's LossScaleOptimizer, the next base, a test of all workers' gradients. The
    base tests the gradients of this worker alone, and with dynamic=False tests nothing."""

    def __init__(self: Any, inner_optimizer: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(tf.keras.optimizers.get(inner_optimizer), *arguments, **options)
        self._npu_finite = tf.Variable(True, trainable=False)

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        apply = self.inner_optimizer.apply_gradients
        return self._step(gradients, variables, lambda: apply(pairs, *args, **kwargs))

    @property
    def _npu_scale(self: Any) -> Any:
        return self._loss_scale.current_loss_scale

    @property
    def _npu_steps(self: Any) -> Any:
        return self.dynamic_counter


class _Keras3:
    """The methods that Keras 3 calls: `fit` lets the optimizer scale the loss and unscale
    gradients."""

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
        self.dynamic = dynamic
        self.initial_scale = float(2**15 if initial_scale is None else initial_scale)
        self.dynamic_growth_steps = 2000 if dynamic_growth_steps is None else dynamic_growth_steps
        self._npu_scale = tf.Variable(self.initial_scale, trainable=False, dtype=tf.float32)
        self._npu_steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._npu_finite = tf.Variable(True, trainable=False)
        self._npu_fit_scales = False

    @property
    def inner_optimizer(self) -> Any:
        return self

    @property
    def loss_scale(self: Any) -> tf.Tensor:
        return tf.convert_to_tensor(self._npu_scale)

    @property
    def dynamic_counter(self: Any) -> tf.Variable:
        """The number of finite steps since the last change of the scale."""
        return self._npu_steps

    def get_scaled_loss(self: Any, loss: Any) -> Any:
        if callable(loss):
            return lambda: self.get_scaled_loss(loss())
        return loss * tf.cast(self._npu_scale, loss.dtype)

    def get_unscaled_gradients(self: Any, gradients: Any) -> list[Any]:
        inverse = 1.0 / self._npu_scale
        return [None if g is None else g * tf.cast(inverse, g.dtype) for g in gradients]

    def scale_loss(self: Any, loss: Any) -> Any:
        self._npu_fit_scales = True
        return self.get_scaled_loss(loss)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        gradients = list(grads)
        if self._npu_fit_scales:
            self._npu_fit_scales = False
            gradients = self.get_unscaled_gradients(gradients)
        variables = trainable_variables
        if variables is None:
            variables = self._trainable_variables
        return self._step(
            gradients, list(variables), lambda: self._npu_within(gradients, trainable_variables)
        )


@functools.lru_cache(maxsize=None)
def _scaling(kind: type) -> type:
    """Makes a class with the name of the inner optimizer's class, which Keras uses to save and copy
    it."""
    copied = classmethod(lambda _, config, *arguments: kind.from_config(config, *arguments))  # type: ignore[attr-defined]
    own = {"__module__": kind.__module__, "from_config": copied}
    return type(kind.__name__, (NpuLossScaleOptimizer, _Keras3, kind), own)


@functools.lru_cache(maxsize=None)
def _scaling_keras_2(kind: type) -> type:
    """Makes a class with the name of Keras's class, which Keras uses to save it. Keras has one for
    legacy optimizers and one for all others."""
    scalers = loss_scalers(kind)[1:]
    base = next(each for each in scalers if any(issubclass(kind, b) for b in each.__bases__))
    own = {"__module__": base.__module__}
    return type(base)(base.__name__, (NpuLossScaleOptimizer, _Keras2, base), own)
