"""Ascend's name for the module of open() and related functions."""

from __future__ import annotations

from typing import Optional

from npu_device import (
    _device,
    gen_npu_ops,
    global_options,
    is_inf_nan_enabled,
    keep_dtype_scope,
    npu_compat_function,
    npu_recompute_scope,
    npu_run_context,
    open,  # noqa: A004  Ascend's name
    set_device_sat_mode,
    set_npu_loop_size,
)

__all__ = [
    "gen_npu_ops",
    "global_npu_ctx",
    "global_options",
    "is_inf_nan_enabled",
    "keep_dtype_scope",
    "npu_compat_function",
    "npu_recompute_scope",
    "npu_run_context",
    "open",
    "set_device_sat_mode",
    "set_npu_loop_size",
]


def global_npu_ctx() -> Optional[_device.Device]:
    """The device whose as_default() was called; None before."""
    return _device._default
