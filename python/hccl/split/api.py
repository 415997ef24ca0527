"""Sets where a group's gradients are cut into segments: HCCL's hccl.split.api.

A setting by size takes precedence over one by index. A later call replaces an earlier one. Every
error is a ValueError.
"""

from __future__ import annotations

from typing import Callable, Union

from hccl import _hccl
from hccl._checks import check_group, check_list, check_number, describe
from hccl.errors import HcclError

_set: set[str] = set()  # groups for which the program set a strategy
_SUM_TOLERANCE = 1e-3  # seven times 14.2857 counts as 100


def set_split_strategy_by_idx(idxList: list[int], group: str = _hccl.WORLD) -> None:
    """Ends a segment at each of these indices of gradients, in ascending order. The last index must
    be that of the last gradient."""
    check_group(group)
    check_list("idxList", idxList)
    if not idxList:
        raise ValueError("idxList: is empty")
    for i, index in enumerate(idxList):
        check_number(f"idxList[{i}]", index)
    for i, (before, index) in enumerate(zip(idxList, idxList[1:]), 1):
        if index <= before:
            raise ValueError(f"idxList: must ascend, but [{i}] is {index} after {before}")
    _call(_hccl.set_split_by_index, group, [int(index) for index in idxList])


def set_split_strategy_by_size(
    dataSizeList: list[Union[int, float]], group: str = _hccl.WORLD
) -> None:
    """Sets the size of each segment as a percentage of the bytes of all gradients. The sum must be
    100 within 0.001."""
    check_group(group)
    check_list("dataSizeList", dataSizeList)
    if not dataSizeList:
        raise ValueError("dataSizeList: is empty")
    for i, size in enumerate(dataSizeList):
        if not isinstance(size, (int, float)):
            raise ValueError(f"dataSizeList[{i}]: expected an int or a float, not {describe(size)}")
        if size < 0:
            raise ValueError(f"dataSizeList[{i}]: is {size}, below 0")
    try:
        total = sum(dataSizeList)
    except OverflowError:  # an int that is too large to be a float
        total = float("inf")
    if not abs(total - 100) <= _SUM_TOLERANCE:  # also true for NaN
        raise ValueError(f"dataSizeList: adds up to {total}, not to 100: {dataSizeList}")
    _call(_hccl.set_split_by_size, group, [float(size) for size in dataSizeList])


def set_split_strategy_auto(group: str = _hccl.WORLD) -> None:
    """Cuts the gradients by a plan, the same on all ranks, that is computed from measured times of
    the training. Has no effect if the group has a setting by index or size. All ranks must call
    it."""
    check_group(group)
    _call(_hccl.set_split_auto, group)


def _is_set(group: str = _hccl.WORLD) -> bool:
    """Returns whether the program has set a strategy for the group."""
    return group in _set


def _call(function: Callable[..., None], group: str, *values: object) -> None:
    try:
        function(group, *values)
    except HcclError as error:
        raise ValueError(f"set split strategy error:{group}, ret[{error.code}]: {error}") from None
    _set.add(group)
