"""npu_device.compat.v1: npu_bridge by the name that scripts for TensorFlow 2.6 use."""
