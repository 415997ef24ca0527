"""npu.compat: TensorFlow 1's names, for scripts that say npu_device.compat.v1."""

import tensorflow as tf


def enable_v1() -> None:
    """TensorFlow 1's behaviour, for the whole process."""
    tf.compat.v1.disable_v2_behavior()
