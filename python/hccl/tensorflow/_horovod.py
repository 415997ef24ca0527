"""Horovod's arguments: compression, process sets, and keywords with one possible value."""

from __future__ import annotations

import itertools
from typing import Any, Optional, Sequence

import hccl
import tensorflow as tf
from hccl.manage import api as _manage

from hccl.tensorflow import _world

REDUCTIONS = ("mean", "sum", "max", "min", "prod")


class _Cast:
    """A compression: floats are reduced in another type. None: in their own."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to reduce, and the context that decompress needs with the result."""
        if self._dtype is None or not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, self._dtype), tensor.dtype

    def decompress(self, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The types in which gradients are reduced: their own, or one of 16 bits. A user's object with
    compress and decompress is a compression, too."""

    none = _Cast(None)
    fp16 = _Cast(tf.float16)
    bf16 = _Cast(tf.bfloat16)


class ProcessSet:
    """Some ranks of the world. init or add_process_set makes a group of them."""

    process_set_id: Optional[int] = None  # None: not yet a group

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = sorted(ranks)

    @property
    def ranks(self) -> list[int]:
        return list(range(_world.size())) if self.process_set_id == 0 else self._ranks

    @property
    def group(self) -> str:
        """ValueError: the process set was passed neither to init nor to add_process_set."""
        if self.process_set_id is None:
            raise ValueError(f"hccl: {self} is not yet a group: call add_process_set on all ranks")
        return f"hccl_process_set_{self.process_set_id}" if self.process_set_id else hccl.WORLD

    def included(self) -> bool:
        """Whether this process is a rank of the set."""
        return self.process_set_id == 0 or _manage.get_rank_id() in self._ranks

    def size(self) -> Optional[int]:
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> Optional[int]:
        """The number of this rank in the set; None if the set is no group or lacks this rank."""
        there = self.process_set_id is not None and self.included()
        return self.ranks.index(_manage.get_rank_id()) if there else None

    def __repr__(self) -> str:
        return f"ProcessSet({self.ranks})"


global_process_set = ProcessSet([])  # all ranks
global_process_set.process_set_id = 0
_ids = itertools.count(1)


def add_process_set(process_set: Any) -> ProcessSet:
    """Makes a group of a process set, or of a list of ranks. All ranks of the world must call this,
    in one order. ValueError: the set is a group already, or has ranks that do not exist."""
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"hccl: {process_set} is a group already")
    if not set(process_set.ranks) <= set(global_process_set.ranks):
        raise ValueError(f"hccl: {process_set} has ranks beyond {global_process_set}")
    process_set.process_set_id = next(_ids)
    if process_set.included():
        _manage.create_group(process_set.group, len(process_set.ranks), process_set.ranks)
    return process_set


def group_of(process_set: ProcessSet, group: str) -> str:
    return group if process_set is global_process_set else process_set.group


def root_of(process_set: ProcessSet, root_rank: int) -> int:
    """Returns the root's number in the group; Horovod numbers it in the world."""
    if process_set is global_process_set:
        return root_rank
    if root_rank not in process_set.ranks:
        raise ValueError(f"hccl: root_rank={root_rank} is no rank of {process_set}")
    return process_set.ranks.index(root_rank)


def reduction(op: Any, average: Optional[bool] = None) -> str:
    """Returns the reduction that Horovod's arguments op and average choose."""
    if isinstance(op, bool):  # Horovod's second argument is average
        op, average = None, op
    if average is not None:
        if op is not None:
            raise ValueError("hccl: op and average are two words for the same: give one")
        return "mean" if average else "sum"
    if op == "adasum":
        refuse("op", op, "the library adds, averages, multiplies and compares only")
    if op is not None and op not in REDUCTIONS:
        raise ValueError(f'hccl: there is no reduction "{op}"')
    return op or "mean"


def refuse(keyword: str, value: Any, why: str) -> None:
    raise NotImplementedError(f"hccl: {keyword}={value!r} is not supported: {why}")


def check_devices(**devices: str) -> None:
    for keyword, device in devices.items():
        if device and "cpu" not in device.lower():
            refuse(keyword, device, "collectives run on CPUs")


def check_groups(num_groups: Any, groups: Any) -> None:
    """Any division of the gradients gives the same results; here all of them are one group."""
    for keyword, value in (("num_groups", num_groups), ("groups", groups)):
        if not (value is None or isinstance(value, (list, tuple)) or value >= 0):
            raise ValueError(f"hccl: {keyword}={value!r}: not a number or lists of variables")
