"""Horovod's compression of tensors that are reduced."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hccl._horovod import Cast


def _is_float(tensor: Any) -> bool:
    return tensor.dtype.is_floating


class Compression:
    """The types in which gradients are reduced: their own, or one of 16 bits. A program may also
    pass an object of its own with compress() and decompress()."""

    none, fp16, bf16 = (Cast(dtype, _is_float, tf.cast) for dtype in (None, tf.float16, tf.bfloat16))
