"""Keras optimizers, of Keras 2 and 3, whose gradients are reduced first."""

from __future__ import annotations

from typing import Any, Callable, Optional


def reducing(optimizer: Any, reduce: Callable[[list, list], list]) -> Any:
    """The same optimizer, changed: it applies what `reduce` makes of the gradients and the names of their
    variables."""
    if hasattr(type(optimizer), "apply"):  # Keras 3: apply_gradients calls it
        apply_all = optimizer.apply

        def apply(grads: Any, trainable_variables: Optional[Any] = None) -> Any:
            variables = trainable_variables
            if variables is None:
                variables = optimizer._trainable_variables
            reduced = reduce(list(grads), [variable.name for variable in variables])
            return apply_all(reduced, trainable_variables)

        optimizer.apply = apply
        return optimizer
    apply_pairs = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        gradients, variables = zip(*grads_and_vars)
        reduced = reduce(list(gradients), [variable.name for variable in variables])
        return apply_pairs(list(zip(reduced, variables)), *args, **kwargs)

    optimizer.apply_gradients = apply_gradients
    return optimizer
