"""npu_bridge.estimator."""
