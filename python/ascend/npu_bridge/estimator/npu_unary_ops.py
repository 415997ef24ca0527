"""npu_unary_ops."""

import sys
from typing import Any

import tensorflow as tf

npu_unary_ops = sys.modules[__name__]  # scripts import this name from the module npu_unary_ops


def gelu(x: Any) -> Any:
    """Gelu by the approximation with tanh, as on an NPU."""
    return tf.compat.v2.nn.gelu(x, approximate=True)
