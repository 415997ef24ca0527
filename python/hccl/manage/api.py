"""Groups of ranks by name, and the ranks of processes: HCCL's hccl.manage.api.

A rank's number in a group is its position in the sorted list of the group's world ranks. Every
error is a ValueError.
"""

from __future__ import annotations

from typing import Callable, TypeVar

from hccl import _hccl
from hccl._checks import check_group, check_list, check_number, describe
from hccl.errors import HcclError

Answer = TypeVar("Answer")


def create_group(group: str, rank_num: int, rank_ids: list[int]) -> None:
    """Makes a group of the given world ranks. Each of them must call this. If this process is in no
    world yet, the request is stored, and the group is made when the process joins the world."""
    check_group(group)
    if not isinstance(rank_num, int):
        raise ValueError(f"rank_num: expected an int, not {describe(rank_num)}")
    if rank_num <= 0:
        raise ValueError(f"rank_num: is {rank_num}, not above 0")
    check_list("rank_ids", rank_ids)
    if len(rank_ids) != rank_num:
        raise ValueError(f"rank_ids: has {len(rank_ids)} ranks, rank_num is {rank_num}: {rank_ids}")
    for i, rank in enumerate(rank_ids):
        check_number(f"rank_ids[{i}]", rank)
    plain = [int(rank) for rank in rank_ids]  # bools, which Python counts as ints, too
    _call(f"create group error:{group}, ", _hccl.create_group, group, plain)


def destroy_group(group: str) -> None:
    """Ends a group, or withdraws a stored request. Each rank of the group must call it."""
    check_group(group)
    _call(f"destroy group error :{group}, ", _hccl.destroy_group, group)


def get_rank_size(group: str = _hccl.WORLD) -> int:
    """The number of ranks of the group."""
    check_group(group)
    return _call("get rank size error. ", _hccl.get_rank_size, group)


def get_rank_id(group: str = _hccl.WORLD) -> int:
    """The rank of this process in the group."""
    check_group(group)
    return _call("get rank id error. ", _hccl.get_rank_id, group)


def get_local_rank_size(group: str = _hccl.WORLD) -> int:
    """The number of the group's ranks on each host."""
    check_group(group)
    return _call("get local rank size error. ", _hccl.get_local_rank_size, group)


def get_local_rank_id(group: str = _hccl.WORLD) -> int:
    """The rank of this process among the group's ranks on its host."""
    check_group(group)
    return _call("get local rank id error. ", _hccl.get_local_rank_id, group)


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """Returns the world rank of the rank `group_rank_id` of the group."""
    check_group(group)
    check_number("group_rank_id", group_rank_id)
    return _call(
        "get world rank from group rank error. ",
        _hccl.get_world_rank_from_group_rank,
        group,
        int(group_rank_id),
    )


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """Returns the group rank of a world rank, which must be a member of the group."""
    check_group(group)
    check_number("world_rank_id", world_rank_id)
    return _call(
        "get group rank from world rank error. ",
        _hccl.get_group_rank_from_world_rank,
        int(world_rank_id),
        group,
    )


def _call(text: str, function: Callable[..., Answer], *arguments: object) -> Answer:
    try:
        return function(*arguments)
    except HcclError as error:
        raise ValueError(f"{text}ret[{error.code}]: {error}") from None
