"""npu_bridge.hccl: HCCL's ops, and its Python modules with the names in TensorFlow scripts."""
