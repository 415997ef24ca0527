"""A context that profiles an NPU. On a CPU it has no effect. Use tf.profiler to profile a CPU, and
hccl.tensorflow.trace_at_exit to write traces of gradients."""

from __future__ import annotations

from typing import Any

from npu_device._kept import Context


class Profiler(Context):
    def __init__(self, *, level: str = "L0", aic_metrics: str = "", output_path: str = "") -> None:
        given = {"level": level, "aic_metrics": aic_metrics, "output_path": output_path}
        for name, value in given.items():
            if not isinstance(value, str):
                raise ValueError(f"Option {name} should be str, but get type: {type(value)}")
