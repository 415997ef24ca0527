"""Tensors in memory that the ranks of a host share."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence

if typing.TYPE_CHECKING:
    import torch

    Tensors = typing.TypeVar("Tensors", bound=torch.nn.Module | Iterable[torch.Tensor])


def empty(*shape: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a new tensor with undefined contents in memory that the ranks of a host share.
    Collectives of the backend "hccl" do not copy the tensor. It needs no process group and may
    outlive all groups."""
    import torch

    from hccl.torch import _module

    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    dtype = dtype or torch.get_default_dtype()
    if _module.why_python() is not None:
        from hccl.torch import _python

        return _python.empty(shape, dtype)
    return _module.load().empty(shape, dtype)


def has_memory(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has memory of its own. A tensor of a subclass that replaces
    operators, such as DTensor, has its elements in other tensors."""
    import torch

    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def share_(module: Tensors) -> Tensors:
    """Moves the parameters and buffers of a torch.nn.Module (or the tensors of an iterable) into
    memory that the ranks of a host share. Values, shapes and strides do not change, and tensors
    that share a storage still share one. Returns the module."""
    import torch

    if isinstance(module, torch.nn.Module):
        tensors = [*module.parameters(), *module.buffers()]
    else:
        tensors = list(module)
    for number, tensor in enumerate(tensors):
        if not has_memory(tensor):
            raise RuntimeError(
                f"hccl: share_ cannot move tensor {number}: a {type(tensor).__name__} has no "
                "memory of its own"
            )
    storages = {}
    for tensor in tensors:
        old = tensor.untyped_storage()
        if old.data_ptr() not in storages:
            new = empty(old.nbytes(), dtype=torch.uint8).untyped_storage()
            new.copy_(old)
            storages[old.data_ptr()] = new
        moved = torch.empty(0, dtype=tensor.dtype)
        moved.set_(
            storages[old.data_ptr()], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        tensor.data = moved
    return module
