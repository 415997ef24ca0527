"""npu_bridge.hccl: HCCL's ops, and its Python modules by the name that TensorFlow scripts use."""
