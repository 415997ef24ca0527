"""Profilers with Ascend's arguments. They are torch's own, for the CPU."""

import contextlib
import functools
import operator
import os
import types
from typing import Any, Iterator, Optional

import torch
import torch.profiler

from hccl.torch.npu import _calls

_CPU = torch.profiler.ProfilerActivity.CPU
_METRICS = (
    *("PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB", "L2Cache"),
    "ResourceConflictRatio",
)


def install() -> None:
    """Makes torch.autograd.profiler.profile(use_npu=True) profile the CPU."""
    profiler = torch.autograd.profiler.profile
    begin = profiler.__init__

    @functools.wraps(begin)
    def without_npu(self: Any, *args: Any, use_npu: bool = False, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)

    profiler.__init__ = without_npu
    _sort_by_npu()


def _sort_by_npu() -> None:
    """Makes the NPU's times and memory, which are the CPU's, valid keys to sort tables and to
    export stacks."""
    tables = torch.autograd.profiler_util
    names = (
        *("{}_time", "{}_time_total", "self_{}_time_total"),
        *("{}_memory_usage", "self_{}_memory_usage"),
    )
    for kind in (tables.FunctionEvent, tables.FunctionEventAvg):
        for name in names:
            setattr(kind, name.format("npu"), property(operator.attrgetter(name.format("cpu"))))
    export = tables.EventList.export_stacks

    @functools.wraps(export)
    def export_stacks(self: Any, path: str, metric: str) -> None:
        export(self, path, metric.replace("npu", "cpu"))

    tables.EventList.export_stacks = export_stacks


class profile(torch.profiler.profile):
    """torch.profiler.profile with the CPU's activities."""

    def __init__(self, *, activities: Any = None, experimental_config: Any = None, **rest: Any):
        super().__init__(activities=[_CPU], **rest)


def _write(done: Any, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    done.export_chrome_trace(os.path.join(folder, f"trace_{os.getpid()}.json"))


@contextlib.contextmanager
def profile_of_block(profiler_result_path: str = "./", *_: Any, **__: Any) -> Iterator[None]:
    """torch.npu.profile: writes torch's profile of the block, for chrome://tracing."""
    with torch.profiler.profile(activities=[_CPU]) as done:
        yield
    _write(done, profiler_result_path)


class Profile:
    """torch_npu.utils.profiler.Profile: if `profile_type` is set, profiles step number `start_step`
    and writes a file in `save_path`. A step runs from start() to end()."""

    _one: Optional["Profile"] = None

    def __new__(cls, *_: Any, **__: Any) -> "Profile":  # one object in each process, as with Ascend's class
        cls._one = cls._one or super().__new__(cls)
        return cls._one

    def __init__(
        self,
        start_step: int = 10,
        save_path: str = "./npu_profiling",
        profile_type: Optional[str] = None,
        **_: Any,
    ) -> None:
        if not hasattr(self, "_step"):
            self._step, self._start = 0, start_step
            self._folder, self._wanted = save_path, profile_type is not None
            self._profile: Any = None

    def start(self) -> None:
        self._step += 1
        if self._wanted and self._step == self._start:
            self._profile = torch.profiler.profile(activities=[_CPU])
            self._profile.start()

    def end(self) -> None:
        if self._profile is None:
            return
        done, self._profile = self._profile, None
        done.stop()
        _write(done, self._folder)


def _trace_handler(
    dir_name: str, worker_name: Optional[str] = None, analyse_flag: bool = True, **_: Any
) -> Any:
    return torch.profiler.tensorboard_trace_handler(dir_name, worker_name)


def contents() -> dict:
    """Returns the names of torch_npu.profiler."""
    anything = types.SimpleNamespace
    return {
        "profile": profile,
        "ProfilerActivity": anything(CPU=_CPU, NPU=_CPU),
        "ProfilerAction": torch.profiler.ProfilerAction,
        "schedule": torch.profiler.schedule,
        "tensorboard_trace_handler": _trace_handler,
        "supported_activities": lambda: {_CPU},
        "_ExperimentalConfig": anything,
        "ProfilerLevel": anything(Level_none=None, Level0=0, Level1=1, Level2=2),
        "AiCMetrics": anything(AiCoreNone=None, **{name: name for name in _METRICS}),
        "ExportType": anything(Text="text", Db="db"),
    }


def modules() -> dict:
    """Returns the names of the modules of torch_npu.profiler. Functions that analyse a profile, or
    begin one later, do nothing."""
    return {
        "torch_npu.profiler.profiler": {"analyse": _calls._nothing, "profile": profile},
        "torch_npu.profiler.dynamic_profile": dict.fromkeys(("init", "start", "step"), _calls._nothing),
    }
