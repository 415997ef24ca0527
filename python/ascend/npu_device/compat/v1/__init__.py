"""npu_device.compat.v1: scripts for TensorFlow 2.6 use npu_bridge by this name."""
