"""Sends Python objects, parameters and the state of optimizers from one rank to all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import torch
from hccl import _world
from hccl._horovod import ProcessSet, global_process_set
from hccl.horovod.torch import _ops
from torch.utils import _pytree


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object. Other ranks get a copy, by `pickle`."""
    is_root = global_process_set.rank() == root_rank
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8) if is_root else None
    size = torch.tensor(0 if data is None else len(data))
    _ops.broadcast_(size, root_rank, None, process_set)
    data = torch.empty(int(size), dtype=torch.uint8) if data is None else data
    _ops.broadcast_(data, root_rank, None, process_set)
    return obj if is_root else pickle.loads(data.numpy().tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the objects of all ranks, in their order, by `pickle`."""
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    sizes = _ops.allgather(torch.tensor([len(data)]), None, process_set).tolist()
    parts = _ops.allgather(data, None, process_set).split(sizes)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]


def broadcast_object_fn(root_rank: int = 0, name: str | None = None, **options: Any) -> Any:
    """Returns a function that broadcasts its argument."""
    return lambda obj: broadcast_object(obj, root_rank, name, **options)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Copies the root's tensors into those of all ranks, in place. params: a state_dict,
    named_parameters(), or tensors. Values that are not tensors do not change."""
    if not isinstance(params, Iterable):
        raise ValueError(f"hccl: params: expected a dict or pairs, not {type(params).__name__}")
    pairs = sorted(params.items()) if isinstance(params, dict) else params
    tensors = [pair[1] if isinstance(pair, tuple) else pair for pair in pairs]
    begun = [_ops.broadcast_async_(t, root_rank) for t in tensors if isinstance(t, torch.Tensor)]
    for each in begun:
        each.wait()


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None
) -> None:
    """Copies the state and the numbers, such as lr, of the root's optimizer to all ranks. On other
    ranks the optimizer may have no state yet. model: has no effect."""
    is_root, state = global_process_set.rank() == root_rank, optimizer.state_dict()
    tensor = torch.Tensor
    form = _pytree.tree_map_only(tensor, lambda t: t.to("meta"), state) if is_root else None
    form = broadcast_object(form, root_rank)
    if not is_root:
        state = _pytree.tree_map_only(tensor, lambda t: torch.empty_like(t, device="cpu"), form)
    broadcast_parameters(_pytree.tree_leaves(state), root_rank)
    if is_root:
        return
    optimizer.load_state_dict(state)
    # load_state_dict() has cast some tensors to the types of their parameters.
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for parameter, number in zip(parameters, numbers):
        own = optimizer.state.get(parameter, {})
        for key, sent in state["state"].get(number, {}).items():
            there = own.get(key)
            if isinstance(there, tensor) and isinstance(sent, tensor) and there.dtype != sent.dtype:
                own[key] = sent


def gathered_places(local_rank: int, local_size: int) -> tuple[int, int, bool]:
    """Returns cross_rank, cross_size and is_homogeneous. All ranks must call it."""
    rows = torch.tensor([[local_rank, local_size]])
    places = _ops.allgather(rows).tolist() if _world.size() > 1 else rows.tolist()
    same = [rank for rank, place in enumerate(places) if place[0] == local_rank]
    own = global_process_set.rank() or 0
    return same.index(own), len(same), len({size for _, size in places}) == 1
