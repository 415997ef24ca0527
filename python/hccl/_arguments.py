"""Checks of the arguments of hccl.Communicator. They raise TypeError or ValueError and name the
argument."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Optional, Sequence, SupportsIndex, Union, cast

MAX_RANK = (1 << 32) - 1
MAX_TAG = (1 << 31) - 1


def check_number(argument: str, value: object, least: int = 0, most: int = MAX_RANK) -> int:
    """Returns the value as an int."""
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise TypeError(f"{argument}: expected an int, not {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{argument}: is {number}, not {least} to {most}")
    return number


def check_float(argument: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{argument}: expected a number, not {type(value).__name__}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{argument}: expected a number, not {type(value).__name__}") from None


def check_finite(argument: str, value: Any) -> float:
    number = check_float(argument, value)
    if not math.isfinite(number):
        raise ValueError(f"{argument}: is {number}, not finite")
    return number


def check_timeout(argument: str, value: Optional[float]) -> Optional[float]:
    """Returns seconds, or None for no limit."""
    if value is None:
        return None
    seconds = check_float(argument, value)
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{argument}: is {seconds} s, not 0 or more, or None")
    return seconds if seconds < 1e9 else None


def check_path(path: Union[str, os.PathLike[str]]) -> str:
    text = os.fspath(path)
    if "\0" in text:
        raise ValueError("path: contains a NUL character")
    return text


def check_op(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"op: expected a str such as 'sum', not {type(value).__name__}")
    return value


def check_counts(argument: str, values: Sequence[int], size: int) -> list[int]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{argument}: expected ints, one a rank, not {type(values).__name__}")
    counts = [check_number(f"{argument}[{i}]", value) for i, value in enumerate(values)]
    if len(counts) != size:
        raise ValueError(f"{argument}: has {len(counts)} numbers, there are {size} ranks")
    return counts
