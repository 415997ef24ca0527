"""Divides the step over the ranks: each rank applies the gradients of its share of the variables
and sends these variables to all ranks."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from hccl.tensorflow import _shares

from npu_device import _device


def grouping_gradients_apply(
    apply_func: Callable, grads_and_vars: Any, *args: Any, **kwargs: Any
) -> Any:
    """Calls apply_func with this rank's share, then sets every variable to its owner's value."""
    worker = _device.cluster_worker()
    if worker is None:
        return apply_func(grads_and_vars, *args, **kwargs)
    pairs = list(grads_and_vars)
    owners = _shares.owners([variable for _, variable in pairs], worker.workers_num)
    own = [pair for pair, owner in zip(pairs, owners) if owner == worker.worker_id]
    result = apply_func(own, *args, **kwargs)
    _shares.give([variable for _, variable in pairs], owners)
    return result


def grouping_broadcast(variables: Sequence[Any]) -> None:
    """Sets every variable to its value on its owner, the rank whose share contains it in
    grouping_gradients_apply."""
    worker = _device.cluster_worker()
    if worker is not None:
        _shares.give(variables, _shares.owners(variables, worker.workers_num))
