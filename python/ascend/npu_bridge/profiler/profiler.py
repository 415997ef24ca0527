"""A context that profiles an NPU; on a CPU it writes nothing. Use tf.profiler to profile a CPU, and
hccl.tensorflow.trace_at_exit to write traces of gradients."""

from __future__ import annotations

from typing import Any

from hccl.tensorflow import _log


class Profiler:
    def __init__(self, *, level: str = "L0", aic_metrics: str = "", output_path: str = "") -> None:
        given = {"level": level, "aic_metrics": aic_metrics, "output_path": output_path}
        for name, value in given.items():
            if not isinstance(value, str):
                raise ValueError(f"Option {name} should be str, but get type: {type(value)}")

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        _log.without_effect("Profiler")

    def stop(self) -> None:
        pass
