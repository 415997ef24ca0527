"""Ascend's name for the module of open() and related functions."""

from __future__ import annotations

from typing import Optional

from hccl._world import leave as close
from npu_device import *  # noqa: F403
from npu_device import _device, __all__ as _of_package
from npu_device.compat import enable_v1

__all__ = [*_of_package, "close", "enable_v1", "global_npu_ctx"]


def global_npu_ctx() -> Optional[_device.Device]:
    """Returns the device whose as_default() was called, or None before that call."""
    return _device._default
