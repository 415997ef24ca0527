"""npu_unary_ops."""

from typing import Any

import tensorflow as tf


def gelu(x: Any) -> Any:
    """Gelu by the approximation with tanh, as on an NPU."""
    return tf.compat.v2.nn.gelu(x, approximate=True)
