"""Horovod's compression of tensors that are reduced."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class _Cast:
    """A compression: floats are reduced in the type `dtype`, or in their own type if it is None."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to reduce, and the context that decompress() needs with the result."""
        if self._dtype is None or not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, self._dtype), tensor.dtype

    def decompress(self, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The types in which gradients are reduced: their own, or one of 16 bits. A program may also
    pass an object of its own with compress() and decompress()."""

    none = _Cast(None)
    fp16 = _Cast(tf.float16)
    bf16 = _Cast(tf.bfloat16)
