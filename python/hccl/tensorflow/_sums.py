"""Sums the gradients of several backward passes. An optimizer makes one step with each sum."""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf


class Sums:
    """Adds gradients up. Every `passes`-th call makes a step with their sums or means. Other calls
    only increment the optimizer's counter of iterations."""

    def __init__(self, passes: int, average: bool, sparse_as_dense: bool, counted: Any) -> None:
        self._passes, self._scale = passes, 1 / passes if average else 1.0
        self._sparse_as_dense, self._counted = sparse_as_dense, counted
        self._sums: Optional[list[Any]] = None
        self._count: Any = None

    @tf.autograph.experimental.do_not_convert
    def add(self, gradients: list, variables: list, step: Callable[[list], Any]) -> None:
        """Adds the gradients, and makes the step if it is due. ValueError: a gradient is sparse
        without sparse_as_dense, or a gradient is None in some calls only. NotImplementedError:
        there are several replicas."""
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise NotImplementedError("hccl: backward_passes_per_step adds up for one replica only")
        if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
            if not self._sparse_as_dense:
                raise ValueError(
                    "hccl: backward_passes_per_step adds gradients up, and one of them is sparse: "
                    "set sparse_as_dense=True"
                )
        given = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        if self._sums is None:
            with tf.init_scope():  # outside the function that is being traced
                if hasattr(self._counted, "build"):  # Keras makes no variables in a conditional
                    self._counted.build(variables)
                self._count = tf.Variable(0, trainable=False)
                self._sums = [self._zeros(v, g) for v, g in zip(variables, given)]
        if [each is None for each in self._sums] != [each is None for each in given]:
            raise ValueError("hccl: backward_passes_per_step needs the same gradients in each pass")
        count = self._count.assign_add(1)
        for own, gradient in zip(self._sums, given):
            if own is not None:
                own.assign_add(gradient)
        tf.cond(count >= self._passes, lambda: self._apply(step), self._skip)

    def _zeros(self, variable: Any, gradient: Any) -> Any:
        if gradient is None:
            return None
        return tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False)

    def _apply(self, step: Callable[[list], Any]) -> Any:
        step([own if own is None else own.read_value() * self._scale for own in self._sums or ()])
        for own in self._sums or ():
            if own is not None:
                own.assign(tf.zeros_like(own))
        self._count.assign(0)
        return tf.constant(True)

    def _skip(self) -> Any:
        self._counted.iterations.assign_add(1)
        return tf.constant(False)
