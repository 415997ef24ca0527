"""npu.compat: TensorFlow 1's names, for scripts that use npu_device.compat.v1."""

import tensorflow as tf

from npu_device.compat import v1  # noqa: F401  an empty package


def enable_v1() -> None:
    """Enables TensorFlow 1's behaviour for the whole process."""
    tf.compat.v1.disable_v2_behavior()
