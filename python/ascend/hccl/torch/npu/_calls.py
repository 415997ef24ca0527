"""torch.npu on a CPU: a host is one device, and every call has finished its work when it
returns."""

import contextlib
import os
import platform
import time
import types
from typing import Any, Iterator, Optional

import torch


class Stream:
    """Work in a stream is done when its call returns, so there is nothing to wait for."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cpu")
        self.npu_stream = 0

    def synchronize(self) -> None:
        pass

    wait_stream = wait_event = lambda self, other: None

    def query(self) -> bool:
        return True

    def record_event(self, event: Optional["Event"] = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Event:
    """Records a time."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._time: Optional[float] = None

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """Returns milliseconds. RuntimeError: one of the two events was not recorded."""
        if self._time is None or end._time is None:
            raise RuntimeError("both events must be recorded before calculating elapsed time")
        return (end._time - self._time) * 1e3

    def synchronize(self) -> None:
        pass

    wait = lambda self, stream=None: None  # noqa: E731

    def query(self) -> bool:
        return True


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for an option of NPUs that has no meaning on a CPU."""


def device_count() -> int:
    """Returns the number of ranks of this host, if their launcher gives it; otherwise the number of
    devices that the script may see."""
    listed = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "0").split(",")
    return int(os.environ.get("LOCAL_WORLD_SIZE", len(listed)))


_current = [0]  # the number that the script has set


def set_device(device: Any) -> None:
    number = str(device).rpartition(":")[2]
    _current[0] = int(number) if number.isdigit() else _current[0]


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed calls torch.cuda's


# ---- memory: that of the process ----

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
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    now, most = memory_allocated() >> 20, max_memory_allocated() >> 20
    return f"memory of process {os.getpid()}: {now} MiB, {most} MiB at most"


def mem_get_info(device: Any = None) -> tuple:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


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
    """Whether a tensor of the list has an element that is not finite."""
    tensors = [gradients] if isinstance(gradients, torch.Tensor) else gradients
    return not all(bool(each.isfinite().all()) for each in tensors if each is not None)


def contents() -> dict:
    """Returns the names of torch.npu."""
    unlike_here = (
        *("synchronize", "empty_cache", "init", "set_compile_mode", "set_option"),
        *("set_stream", "global_step_inc", "set_start_fuzz_compile_step", "launch_graph"),
        *("enable_graph_mode", "disable_graph_mode", "set_dump", "init_dump", "finalize_dump"),
        *("set_aoe", "set_mm_bmm_format_nd", "ipc_collect"),
        *("clear_npu_overflow_flag", "set_per_process_memory_fraction", "set_sync_debug_mode"),
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
        "default_generators": (torch.default_generator,) * 64,  # for any number of a device
        "_lazy_call": lambda call: call(),
        "initial_seed": torch.default_generator.initial_seed,
        "manual_seed": _seed,
        "manual_seed_all": _seed,
        "device": contextlib.nullcontext,
        "get_device_capability": lambda device=None: (0, 0),
        "Stream": Stream,
        "Event": Event,
        "stream": lambda stream: contextlib.nullcontext(stream),
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        **{f"memory_{kind}": memory_allocated for kind in _KINDS},
        **{f"max_memory_{kind}": max_memory_allocated for kind in _KINDS},
        "reset_peak_memory_stats": reset_peak_memory_stats,
        "reset_max_memory_allocated": reset_peak_memory_stats,
        "memory_stats": memory_stats,
        "memory_summary": memory_summary,
        "mem_get_info": mem_get_info,
        "get_device_name": get_device_name,
        "get_device_properties": get_device_properties,
        # Options that may be set to anything.
        "config": types.SimpleNamespace(allow_internal_format=False),
        "matmul": types.SimpleNamespace(allow_hf32=False),
        "conv": types.SimpleNamespace(allow_hf32=False),
    }
