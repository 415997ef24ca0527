"""Makes FullyShardedDataParallel work for models on an NPU, which is the CPU here. torch's class
needs an accelerator unless device_id names the CPU."""

import functools
import importlib.abc
import importlib.util
import inspect
import sys
import types
from typing import Any

import torch

_NAME = "torch.distributed.fsdp.fully_sharded_data_parallel"


def install() -> None:
    """Patches the class when a program imports it, because the import takes a second."""
    if _NAME in sys.modules:
        _patch(sys.modules[_NAME])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            _patch(module)

        spec.loader.exec_module = exec_module
        return spec


def _patch(module: Any) -> None:
    parallel = module.FullyShardedDataParallel
    make, parameters = parallel.__init__, inspect.signature(parallel.__init__)

    @functools.wraps(make)
    def on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        given = parameters.bind(self, *args, **kwargs)
        if given.arguments.get("device_id") is None:
            given.arguments["device_id"] = torch.device("cpu")
        make(*given.args, **given.kwargs)

    parallel.__init__ = on_cpu
    checks = importlib.import_module("torch.distributed.fsdp._init_utils")
    checks._check_module_states_for_sync_module_states = lambda states: None  # type: ignore[attr-defined]
