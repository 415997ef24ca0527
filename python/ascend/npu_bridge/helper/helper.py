"""Returns the module of the NPU's generated ops to scripts."""

from __future__ import annotations

from typing import Any


def get_gen_ops() -> Any:
    from npu_device import gen_npu_ops

    return gen_npu_ops
