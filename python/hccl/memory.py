"""Arrays in device memory, which the ranks of a host share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence, Union

from hccl import _hccl
from hccl._arguments import check_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray

MAX_BYTES = (1 << 63) - 1


def empty(shape: Union[int, Sequence[int]], dtype: DTypeLike = float) -> NDArray[Any]:
    """A new numpy array, with undefined contents, in device memory: collectives between ranks of a
    host do not copy it. As numpy.empty, and `dtype` may also be the name of a type of the package
    ml_dtypes, such as "bfloat16", where that is installed.

    The array and its views hold the memory, which the next array of a like size uses again. Needs
    no communicator, and outlives all of them. Any thread. HcclError: there is no room (the device
    heap has as much as HCCL_DEVICE_MEMORY says), or this process is a fork.
    """
    import numpy as np

    kind = _dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"dtype: {kind} holds Python objects, which cannot be in device memory")
    lengths = [shape] if hasattr(shape, "__index__") else list(shape)
    lengths = [check_number("shape", length, most=MAX_BYTES) for length in lengths]
    bytes_needed = math.prod(lengths) * kind.itemsize
    if bytes_needed == 0:
        return np.empty(lengths, kind)
    if bytes_needed > MAX_BYTES:
        raise ValueError(f"shape: {tuple(lengths)} of {kind} is more than any memory has")
    return _hccl.allocate(bytes_needed).view(kind).reshape(lengths)


class MemoryInfo(NamedTuple):
    """Bytes of the device heap of this process."""

    in_use: int
    """of arrays of empty(), as rounded up"""
    cached: int
    """of freed arrays, kept for the next ones"""
    cache_limit: int
    """of `cached`: HCCL_MEMORY_CACHE"""
    heap_used: int
    """in use by these and others"""
    heap_total: int
    """what the heap can have"""


def memory_info() -> MemoryInfo:
    """How much memory hccl.empty() uses, and what there is."""
    return MemoryInfo(*_hccl.memory_info())


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    import numpy as np

    try:
        return np.dtype(dtype)
    except TypeError:
        if not isinstance(dtype, str):
            raise
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"dtype: numpy has no {dtype!r}, and ml_dtypes is not installed") from None
    if not hasattr(ml_dtypes, dtype):
        raise TypeError(f"dtype: neither numpy nor ml_dtypes has {dtype!r}")
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
    return found
