"""torch.npu on a CPU: a host is one device. A call has finished its work when it returns, unless it
is a collective that the program issues without waiting."""

import contextlib
import os
import pickle
import platform
import types
from typing import Any

import torch

from hccl.torch import _module
from hccl.torch.npu import _streams


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces a function of NPUs that has no meaning on a CPU."""


def device_count() -> int:
    """Returns the number of ranks of this host if the launcher sets it, otherwise the number of
    devices in ASCEND_RT_VISIBLE_DEVICES."""
    listed = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "0").split(",")
    return int(os.environ.get("LOCAL_WORLD_SIZE", len(listed)))


_current = [0]  # the number that the script has set


def set_device(device: Any) -> None:
    """Sets the current device. A device without a number (torch.device("npu", 1) becomes the CPU
    and loses its number) means the number that the launcher gave to this rank."""
    number = str(device).rpartition(":")[2]
    if not isinstance(device, int) and not number.isdecimal():
        names = ("LOCAL_RANK", "ASCEND_DEVICE_ID", "DEVICE_ID")
        number = next((os.environ[name] for name in names if name in os.environ), "")
    if number.isdecimal():
        _current[0] = int(number)


class _Device:
    """torch.npu.device(1): sets the current device in a `with` statement."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._before = _current[0]
        if self._device is not None:
            set_device(self._device)

    def __exit__(self, *_: Any) -> None:
        _current[0] = self._before


def synchronize(device: Any = None) -> None:
    """Waits for the operations that this process has issued in all hccl groups. All other work is
    done when its call returns."""
    if not torch.compiler.is_compiling():
        _module.synchronize()


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed calls torch.cuda's


# ---- memory of the process ----

_KINDS = ("allocated", "reserved", "cached")


def _status(name: str) -> int:
    """Returns the bytes in a line of /proc/self/status."""
    with open("/proc/self/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def memory_allocated(device: Any = None) -> int:
    return _status("VmRSS")


def max_memory_allocated(device: Any = None) -> int:
    return _status("VmHWM")


def reset_peak_memory_stats(device: Any = None) -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def memory_stats(device: Any = None) -> dict:
    now, most = memory_allocated(), max_memory_allocated()
    return {
        f"{kind}_bytes.all.{when}": value
        for kind in ("allocated", "reserved", "active")
        for when, value in (("current", now), ("peak", most))
    } | dict.fromkeys(("num_ooms", "num_alloc_retries", "allocation.all.current"), 0)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    now, most = memory_allocated() >> 20, max_memory_allocated() >> 20
    return f"memory of process {os.getpid()}: {now} MiB, {most} MiB at most"


def mem_get_info(device: Any = None) -> tuple:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _no_history() -> dict:
    """Returns an empty history of memory, because a CPU records none."""
    return {"segments": [], "device_traces": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    with open(filename, "wb") as file:
        pickle.dump(_no_history(), file)


def memory() -> dict:
    """Returns the names of torch.npu for memory."""
    resets = ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")
    return {
        **{f"memory_{kind}": memory_allocated for kind in _KINDS},
        **{f"max_memory_{kind}": max_memory_allocated for kind in _KINDS},
        **dict.fromkeys(resets, reset_peak_memory_stats),
        "empty_cache": _nothing,
        "set_per_process_memory_fraction": _nothing,
        "memory_stats": memory_stats,
        "memory_summary": memory_summary,
        "mem_get_info": mem_get_info,
        "_record_memory_history": _nothing,
        "_snapshot": lambda device=None: _no_history(),
        "_dump_snapshot": _dump_snapshot,
    }


def get_soc_version() -> int:
    """Returns -1. No chip of Ascend's has this number."""
    return -1


def get_device_name(device: Any = None) -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def get_device_properties(device: Any = None) -> Any:
    return types.SimpleNamespace(
        name=get_device_name(),
        total_memory=mem_get_info()[1],
        multi_processor_count=len(os.sched_getaffinity(0)),
        **{"major": 0, "minor": 0, "gcnArchName": ""},  # torch asks for these if "cuda" is the CPU
    )


def npu_check_overflow(gradients: Any) -> bool:
    """Returns whether any tensor of the list has an element that is not finite."""
    tensors = [gradients] if isinstance(gradients, torch.Tensor) else gradients
    return not all(bool(each.isfinite().all()) for each in tensors if each is not None)


def contents() -> dict:
    """Returns the names of torch.npu."""
    unlike_here = (
        *("init", "set_compile_mode", "set_option"),
        *("_lazy_init", "global_step_inc", "set_start_fuzz_compile_step", "launch_graph"),
        *("enable_graph_mode", "disable_graph_mode", "set_dump", "init_dump", "finalize_dump"),
        *("set_aoe", "set_mm_bmm_format_nd", "ipc_collect"),
        *("clear_npu_overflow_flag", "set_sync_debug_mode"),
    )
    typed = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
    return {
        **{name: _nothing for name in unlike_here},
        **{f"{name}Tensor": getattr(torch, f"{name}Tensor") for name in typed},
        "seed": torch.default_generator.seed,
        "seed_all": torch.default_generator.seed,
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_jit_compile_false": lambda: True,
        "device_count": device_count,
        "set_device": set_device,
        "current_device": lambda: _current[0],
        "default_generators": (torch.default_generator,) * 64,  # for each number of a device
        "_lazy_call": lambda call: call(),
        "_is_in_bad_fork": lambda: False,
        "initial_seed": torch.default_generator.initial_seed,
        "manual_seed": _seed,
        "manual_seed_all": _seed,
        "device": _Device,
        "synchronize": synchronize,
        "get_device_capability": lambda device=None: (0, 0),
        **_streams.contents(),
        **memory(),
        "is_autocast_enabled": lambda: torch.is_autocast_enabled("cpu"),
        "set_autocast_enabled": lambda enabled: torch.set_autocast_enabled("cpu", enabled),
        "get_autocast_dtype": lambda: torch.get_autocast_dtype("cpu"),
        "set_autocast_dtype": lambda dtype: torch.set_autocast_dtype("cpu", dtype),
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "get_soc_version": get_soc_version,
        "get_device_name": get_device_name,
        "get_device_properties": get_device_properties,
        # Options that may be set to anything.
        "config": types.SimpleNamespace(allow_internal_format=False),
        "matmul": types.SimpleNamespace(allow_hf32=False),
        "conv": types.SimpleNamespace(allow_hf32=False),
    }
