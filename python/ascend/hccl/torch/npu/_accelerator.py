"""Makes torch.accelerator the NPU, which is the CPU here, but only for scripts. torch's own code
still sees no accelerator, because it would use streams and kernels that a CPU does not have."""

import functools
import sys
from typing import Any

import torch


def install(npu: Any) -> None:
    ours = {
        "is_available": lambda: True,
        "current_accelerator": lambda check_available=False: torch.device("npu"),
        "device_count": npu.device_count,
        "synchronize": npu.synchronize,
        "set_device_index": npu.set_device,
        "set_device_idx": npu.set_device,
        "current_device_index": npu.current_device,
        "current_device_idx": npu.current_device,
        "current_stream": npu.current_stream,
        "set_stream": npu.set_stream,
        "device_index": npu.device,
        "empty_cache": npu.empty_cache,
        "get_memory_info": npu.mem_get_info,
        "memory_stats": npu.memory_stats,
        "reset_peak_memory_stats": npu.reset_peak_memory_stats,
        "memory_allocated": npu.memory_allocated,
        "memory_reserved": npu.memory_reserved,
        "max_memory_allocated": npu.max_memory_allocated,
        "max_memory_reserved": npu.max_memory_reserved,
    }
    accelerator = getattr(torch, "accelerator", None)  # since PyTorch 2.6
    for name, one in ours.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, _for_scripts(one, getattr(accelerator, name)))


def called_by_torch() -> bool:
    """Returns whether the function that calls this one was called by a function of torch."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).split(".")[0] == "torch"


def _for_scripts(ours: Any, torchs: Any) -> Any:
    @functools.wraps(torchs, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return (torchs if called_by_torch() else ours)(*args, **kwargs)

    return call
