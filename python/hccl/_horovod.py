"""Horovod's arguments for every framework: reductions, compressions, process sets, keywords with
one possible value."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Optional, Sequence

import hccl
from hccl import _world
from hccl.manage import api as _manage

REDUCTIONS = ("mean", "sum", "max", "min", "prod")


class ProcessSet:
    """Some ranks of the world. init or add_process_set makes them a group."""

    process_set_id: Optional[int] = None  # None: not yet a group

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = sorted(ranks)

    @property
    def ranks(self) -> list[int]:
        return list(range(_world.size())) if self.process_set_id == 0 else self._ranks

    @property
    def group(self) -> str:
        """The name of the group. ValueError: neither init nor add_process_set made the set a
        group."""
        if self.process_set_id is None:
            raise ValueError(f"hccl: {self} is not yet a group: call add_process_set on all ranks")
        return f"hccl_process_set_{self.process_set_id}" if self.process_set_id else hccl.WORLD

    def included(self) -> bool:
        """Returns whether this process is a rank of the set."""
        return self.process_set_id == 0 or _manage.get_rank_id() in self._ranks

    def size(self) -> Optional[int]:
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> Optional[int]:
        """The number of this rank in the set; None if the set is no group or does not contain this
        rank."""
        there = self.process_set_id is not None and self.included()
        return self.ranks.index(_manage.get_rank_id()) if there else None

    def __repr__(self) -> str:
        return f"ProcessSet({self.ranks})"


global_process_set = ProcessSet([])  # all ranks
global_process_set.process_set_id = 0
_ids = itertools.count(1)


def add_process_set(process_set: Any) -> ProcessSet:
    """Makes a group of a process set, or of a list of ranks. All ranks of the world must call this
    for all groups in the same order. ValueError: the set is a group already, or has ranks that do
    not exist."""
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"hccl: {made} is a group already")
    if not set(made.ranks) <= set(global_process_set.ranks):
        raise ValueError(f"hccl: {made} has ranks beyond {global_process_set}")
    made.process_set_id = next(_ids)
    if made.included():
        _manage.create_group(made.group, len(made.ranks), made.ranks)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends the group of a process set. All ranks of the set must call it. Returns False if the set
    is no group."""
    if not process_set.process_set_id:
        return False
    if process_set.included():
        _manage.destroy_group(process_set.group)
    process_set.process_set_id = None
    return True


def group_of(process_set: ProcessSet, group: str) -> str:
    return group if process_set is global_process_set else process_set.group


def root_of(process_set: ProcessSet, root_rank: int) -> int:
    """Returns the root's number in the group. root_rank is its number in the world, as in
    Horovod."""
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


def factors_text(before: float, after: float) -> str:
    """Returns the text by which ranks compare factors that the library does not apply; empty if
    both are 1."""
    if before == after == 1.0:
        return ""
    return f"prescale_factor {float(before)}, postscale_factor {float(after)}"


class Cast:
    """A compression: floats are reduced in the type `dtype`, or in their own type if it is None."""

    def __init__(
        self, dtype: Any, is_float: Callable[[Any], bool], cast: Callable[[Any, Any], Any]
    ) -> None:
        """is_float and cast: the framework's functions for a tensor, and for a tensor and a type."""
        self._dtype, self._is_float, self._cast = dtype, is_float, cast

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to reduce, and the context that decompress() needs with the result."""
        if self._dtype is None or not self._is_float(tensor):
            return tensor, None
        return self._cast(tensor, self._dtype), tensor.dtype

    def decompress(self, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else self._cast(tensor, ctx)


def refuse(keyword: str, value: Any, why: str) -> None:
    raise NotImplementedError(f"hccl: {keyword}={value!r} is not supported: {why}")


def check_devices(**devices: str) -> None:
    for keyword, device in devices.items():
        if device and "cpu" not in device.lower():
            refuse(keyword, device, "collectives run on CPUs")


def check_groups(num_groups: Any, groups: Any) -> None:
    """Checks two options that have no effect, because all gradients are one group."""
    for keyword, value in (("num_groups", num_groups), ("groups", groups)):
        if not (value is None or isinstance(value, (list, tuple)) or value >= 0):
            raise ValueError(f"hccl: {keyword}={value!r}: not a number or lists of variables")


def absent(name: str, why: str) -> Callable[..., Any]:
    """Returns a replacement, which raises NotImplementedError, for a function that does not exist
    here."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"hccl: {name} is not there: {why}")

    return call


def init(comm: Any = None, process_sets: Optional[Sequence[ProcessSet] | str] = None) -> None:
    """Joins the ranks that mpirun, torchrun, Slurm or a rank table defines; without any of these, a
    world of one rank. Makes groups of the process sets, or none if process_sets is "dynamic". A
    second call does not join again. comm: NotImplementedError unless None."""
    if comm is not None:
        refuse("comm", comm, "the launcher defines the world; use process_sets")
    _world.join()
    for each in () if process_sets is None or isinstance(process_sets, str) else process_sets:
        if each.process_set_id is None:
            add_process_set(each)


def shutdown() -> None:
    """Leaves the world. At the end of the program this happens automatically."""
    _world.leave()


def is_initialized() -> bool:
    return _world.joined()


def rank() -> int:
    return _manage.get_rank_id()


def size() -> int:
    return _manage.get_rank_size()


def local_rank() -> int:
    """The number of this rank on its host."""
    return _manage.get_local_rank_id()


def local_size() -> int:
    return _manage.get_local_rank_size()


def no() -> bool:
    """Returns False: hccl is not built on MPI, Gloo or a library for accelerators."""
    return False
