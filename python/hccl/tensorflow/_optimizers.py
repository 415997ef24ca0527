"""Keras optimizers, of Keras 2 and 3, whose gradients are reduced first.

With the policy mixed_float16, `compile` puts Keras's LossScaleOptimizer around an optimizer. It
makes a step only if the gradients are finite. If gradients were reduced within that step, a rank
with an overflow would omit its collective. So that class is changed, too: around an optimizer that
reduces, it lets the gradients be reduced before it tests them. Then either all ranks make the step
or none.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Optional

Apply = Callable[..., Any]


class _Reduction:
    """The reduction of an optimizer's gradients: once for each step."""

    def __init__(self, reduce: Callable[[list, list], list]) -> None:
        self._reduce, self._done = reduce, False

    def before(self, apply: Callable[[list], Any], gradients: list, variables: list) -> Any:
        """Applies the reduced gradients. Gradients of nested calls are already reduced."""
        if self._done:
            return apply(gradients)
        reduced = self._reduce(gradients, [variable.name for variable in variables])
        self._done = True
        try:
            return apply(reduced)
        finally:
            self._done = False


def reducing(optimizer: Any, reduce: Callable[[list, list], list]) -> Any:
    """Changes the optimizer so that it applies the result of `reduce`, which gets the gradients and
    the names of their variables. Returns the same optimizer."""
    reduction = _Reduction(reduce)
    optimizer._hccl_reduction = reduction
    kind = type(optimizer)
    # Keras 3, whose apply_gradients calls apply, or Keras 2.
    name = "apply" if hasattr(kind, "apply") else "apply_gradients"
    setattr(optimizer, name, _reduced(name, reduction, optimizer, getattr(optimizer, name)))
    for scaler in loss_scalers(kind):
        if name in vars(scaler) and not hasattr(vars(scaler)[name], "_hccl_reduces"):
            setattr(scaler, name, _reduced_before_the_test(name, vars(scaler)[name]))
    return optimizer


def _reduced(name: str, reduction: _Reduction, optimizer: Any, apply_all: Apply) -> Apply:
    def apply(grads: Any, trainable_variables: Optional[Any] = None) -> Any:
        variables = trainable_variables
        if variables is None:
            variables = optimizer._trainable_variables
        return reduction.before(
            lambda reduced: apply_all(reduced, trainable_variables), list(grads), list(variables)
        )

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        return reduction.before(
            lambda reduced: apply_all(list(zip(reduced, variables)), *args, **kwargs),
            gradients,
            variables,
        )

    return apply if name == "apply" else apply_gradients


def _reduced_before_the_test(name: str, method: Apply) -> Apply:
    """Returns a method of LossScaleOptimizer that reduces gradients before the test."""

    @functools.wraps(method)
    def apply(scaler: Any, *args: Any, **kwargs: Any) -> Any:
        reduction = getattr(scaler.inner_optimizer, "_hccl_reduction", None)
        apply_all = functools.partial(method, scaler)
        if reduction is not None:
            apply_all = _reduced(name, reduction, scaler, apply_all)
        return apply_all(*args, **kwargs)

    apply._hccl_reduces = True  # type: ignore[attr-defined]
    return apply


def loss_scalers(kind: type) -> list[type]:
    """Returns the LossScaleOptimizer classes of the Keras that an optimizer class belongs to."""
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    scalers = [
        sys.modules[package].mixed_precision.LossScaleOptimizer
        for package in packages & {"keras", "tf_keras"}
    ]
    # In Keras 2 two subclasses implement it.
    return [each for scaler in scalers for each in (scaler, *scaler.__subclasses__())]
