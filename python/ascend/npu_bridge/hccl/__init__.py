"""npu_bridge.hccl: HCCL's ops for TensorFlow scripts."""
