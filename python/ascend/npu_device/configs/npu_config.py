"""Ascend's name for the module of the options."""

from npu_device.configs import GlobalOptions as NpuConfig

__all__ = ["NpuConfig"]
