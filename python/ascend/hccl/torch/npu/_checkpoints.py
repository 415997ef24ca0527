"""The names to which checkpoints of NPUs refer."""

import enum
from typing import Any

import torch


def _rebuild_npu_tensor(*arguments: Any) -> Any:
    """Makes the tensor. The last argument, its memory format on the NPU, has no meaning here."""
    return torch._utils._rebuild_tensor_v2(*arguments[:-1])


class Format(enum.IntEnum):
    """Memory formats, with Ascend's numbers."""

    UNDEFINED, NCHW, NHWC, ND, NC1HWC0, FRACTAL_Z = range(-1, 5)
    NC1HWC0_C04, HWCN, NDHWC, FRACTAL_NZ, NCDHW = 12, 16, 27, 29, 30
    NDC1HWC0, FRACTAL_Z_3D, NC, NCL = 32, 33, 35, 47


# Checkpoints refer to these modules, and torch.load looks the names up.
_rebuild_npu_tensor.__module__ = "torch_npu.utils.storage"
Format.__module__ = "torch_npu.npu._format"


def install() -> None:
    """Makes torch.load(weights_only=True), the default, accept tensors that NPUs wrote."""
    if hasattr(torch.serialization, "add_safe_globals"):  # since PyTorch 2.4
        torch.serialization.add_safe_globals([_rebuild_npu_tensor, Format])
