"""Each rank applies the gradients of its own share of the variables, and gives them to all."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from hccl.tensorflow import _ops

from npu_device import _device


def _owners(variables: Sequence[Any], ranks: int) -> list[int]:
    """The rank of each variable: the largest first, each to the rank that has least."""
    if len(variables) < ranks:
        raise ValueError(f"{len(variables)} variables cannot be divided over {ranks} ranks")
    sizes = [variable.shape.num_elements() for variable in variables]
    owners, load = [0] * len(variables), [0] * ranks
    for i in sorted(range(len(variables)), key=lambda i: (-sizes[i], i)):
        owners[i] = load.index(min(load))
        load[owners[i]] += sizes[i]
    return owners


def grouping_gradients_apply(
    apply_func: Callable, grads_and_vars: Any, *args: Any, **kwargs: Any
) -> Any:
    """Calls apply_func with this rank's share; then every variable has its owner's value."""
    worker = _device.cluster_worker()
    if worker is None:
        return apply_func(grads_and_vars, *args, **kwargs)
    pairs = list(grads_and_vars)
    owners = _owners([variable for _, variable in pairs], worker.workers_num)
    own = [pair for pair, owner in zip(pairs, owners) if owner == worker.worker_id]
    result = apply_func(own, *args, **kwargs)
    _broadcast([variable for _, variable in pairs], owners)
    return result


def grouping_broadcast(variables: Sequence[Any]) -> None:
    """Gives every variable the value of the rank that grouping_gradients_apply gave it to."""
    worker = _device.cluster_worker()
    if worker is not None:
        _broadcast(variables, _owners(variables, worker.workers_num))


def _broadcast(variables: Sequence[Any], owners: list[int]) -> None:
    for owner in sorted(set(owners)):
        own = [variable for variable, of in zip(variables, owners) if of == owner]
        for variable, value in zip(own, _ops.broadcast(own, owner)):
            variable.assign(value)
