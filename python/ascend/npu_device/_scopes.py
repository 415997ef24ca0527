"""Contexts and switches that have an effect only on an NPU."""

from __future__ import annotations

from hccl.tensorflow import _log

from npu_device._kept import scope

_saturation_mode = 1  # CPUs compute with infinities and NaN


def set_device_sat_mode(mode: int) -> None:
    """Stores the mode: 0 means saturation, 1 means infinities and NaN, as on CPUs. ValueError: the
    mode is neither 0 nor 1."""
    global _saturation_mode
    if mode not in (0, 1):
        raise ValueError(f"mode: is {mode}, not 0 or 1")
    if mode == 0:
        _log.without_effect("set_device_sat_mode(0)")
    _saturation_mode = mode


def is_inf_nan_enabled() -> bool:
    return _saturation_mode == 1


keep_dtype_scope = scope("keep_dtype_scope")
npu_recompute_scope = scope("npu_recompute_scope")
npu_run_context = scope("npu_run_context", options=None)
