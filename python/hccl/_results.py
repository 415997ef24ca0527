"""Makes arrays for results, of the same kind as the input."""

from __future__ import annotations

from typing import Any, TypeVar, cast

Array = TypeVar("Array")


def shape_of(array: Any) -> tuple[int, ...]:
    """Returns the shape of an array of any kind."""
    shape: Any = getattr(array, "shape", None)
    if shape is None:
        try:
            shape = memoryview(array).shape
        except TypeError:
            raise TypeError(f"array: expected an array, not {type(array).__name__}") from None
    return tuple(shape)


def part_of(array: Any, size: int) -> tuple[int, ...]:
    """Returns the shape of one rank's part of the array along the first dimension."""
    rows, *rest = shape_of(array) or (1,)
    if rows % size != 0:
        raise ValueError(
            f"array: its first dimension is {rows}, not a multiple of the {size} ranks"
        )
    return (rows // size, *rest)


def empty_like(array: Array, shape: tuple[int, ...]) -> Array:
    """Returns a new array of the same element type: a tensor for a tensor of torch, otherwise a
    numpy array."""
    if hasattr(array, "new_empty"):  # torch
        return cast(Array, array.new_empty(shape))
    import numpy as np  # only here: programs with other arrays need no numpy

    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.asarray(memoryview(cast(Any, array))).dtype
        except TypeError:
            dtype = np.asarray(array).dtype
    return cast(Array, np.empty(shape, dtype))
