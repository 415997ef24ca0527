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
    """Returns a new numpy array with undefined contents in device memory, which collectives between
    ranks of a host do not copy. The arguments are those of numpy.empty. `dtype` may also be the
    name of a type of the package ml_dtypes, such as "bfloat16", if that is installed.

    The memory lives as long as the array and its views; a later array of a similar size reuses it.
    The array needs no communicator and outlives all of them. A child of fork() has a copy of the
    array: the child's writes do not reach the parent. Elements that the child has not written may
    still change when the parent writes them. Any thread may call empty(). HcclError: the device
    heap is full (HCCL_DEVICE_MEMORY sets its size).
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
    """in arrays of empty(), rounded up"""
    cached: int
    """in freed arrays, kept for the next ones"""
    cache_limit: int
    """the limit of `cached`: HCCL_MEMORY_CACHE"""
    heap_used: int
    """used by these arrays and all other device memory"""
    heap_total: int
    """the most that the heap can have"""


def memory_info() -> MemoryInfo:
    """Returns how much memory hccl.empty() uses, and how large the heap is."""
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
