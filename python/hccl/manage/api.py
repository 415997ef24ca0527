"""Groups of ranks by name, and the ranks of processes: HCCL's hccl.manage.api.

A group's ranks are numbered by their place in the sorted list of world ranks. Every error is a
ValueError.
"""

from hccl import _hccl
from hccl._checks import check_group, check_list, check_number, describe
from hccl.errors import HcclError


def create_group(group, rank_num, rank_ids):
    """Makes a group of the given world ranks; called by each of them. Before the world exists the
    request is kept, and the group is made when the world joins."""
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
    _call(f"create group error:{group}, ", _hccl.create_group, group, _ints(rank_ids))


def destroy_group(group):
    check_group(group)
    _call(f"destroy group error :{group}, ", _hccl.destroy_group, group)


def get_rank_size(group=_hccl.WORLD):
    """The number of ranks of the group."""
    check_group(group)
    return _call("get rank size error. ", _hccl.get_rank_size, group)


def get_rank_id(group=_hccl.WORLD):
    """The rank of this process in the group."""
    check_group(group)
    return _call("get rank id error. ", _hccl.get_rank_id, group)


def get_local_rank_size(group=_hccl.WORLD):
    """The number of the group's ranks on each host."""
    check_group(group)
    return _call("get local rank size error. ", _hccl.get_local_rank_size, group)


def get_local_rank_id(group=_hccl.WORLD):
    """The rank of this process among the group's ranks on its host."""
    check_group(group)
    return _call("get local rank id error. ", _hccl.get_local_rank_id, group)


def get_world_rank_from_group_rank(group, group_rank_id):
    check_group(group)
    check_number("group_rank_id", group_rank_id)
    return _call(
        "get world rank from group rank error. ",
        _hccl.get_world_rank_from_group_rank,
        group,
        int(group_rank_id),
    )


def get_group_rank_from_world_rank(world_rank_id, group):
    check_group(group)
    check_number("world_rank_id", world_rank_id)
    return _call(
        "get group rank from world rank error. ",
        _hccl.get_group_rank_from_world_rank,
        int(world_rank_id),
        group,
    )


def _ints(values):
    """As plain ints: bool is an int, too."""
    return [int(value) for value in values]


def _call(text, function, *arguments):
    try:
        return function(*arguments)
    except HcclError as error:
        raise ValueError(f"{text}ret[{error.code}]: {error}") from None
