"""Ascend's npu_device on CPUs: TensorFlow 2 scripts written for it train here, unmodified.

    import npu_device as npu
    npu.open().as_default()

The device is the CPU, and hccl runs the collectives. Names that have a meaning only on an NPU are
accepted, checked and stored. That they have no effect is logged once, at info level.
"""

from hccl.tensorflow import _launcher

from npu_device import compat, configs, distribute, gen_npu_ops, ops, train
from npu_device._device import open  # noqa: A004  Ascend's name
from npu_device._function import npu_compat_function
from npu_device._loop import set_npu_loop_size
from npu_device._scopes import (
    is_inf_nan_enabled,
    keep_dtype_scope,
    npu_recompute_scope,
    npu_run_context,
    set_device_sat_mode,
)
from npu_device.configs import global_options

_launcher.tell_scripts()

__all__ = [
    "compat",
    "configs",
    "distribute",
    "gen_npu_ops",
    "global_options",
    "is_inf_nan_enabled",
    "keep_dtype_scope",
    "npu_compat_function",
    "npu_recompute_scope",
    "npu_run_context",
    "open",
    "ops",
    "set_device_sat_mode",
    "set_npu_loop_size",
    "train",
]
