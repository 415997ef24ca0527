"""npu_plugin: explicit start and end of the NPU; on a CPU the start joins the ranks."""

from __future__ import annotations

from typing import Any, Optional

from hccl import _world
from hccl.tensorflow import _fusion, _log
from npu_device import is_inf_nan_enabled, set_device_sat_mode

from npu_bridge import _absent

__all__ = [
    "get_rdma_cache",
    "get_var_addr_and_size",
    "init_rdma_pool",
    "is_inf_nan_enabled",
    "malloc_shared_memory",
    "npu_close",
    "npu_resource_init",
    "npu_resource_shutdown",
    "rdma_remote_init",
    "rdma_remote_register",
    "set_device_sat_mode",
]


def npu_resource_init(
    graph_run_mode: int = 1,
    op_debug_level: int = 0,
    enable_profiling: bool = False,
    profiling_options: Optional[str] = None,
    **options: Any,
) -> None:
    """Joins the ranks. ValueError: graph_run_mode is not 0 or 1; profiling without options."""
    if graph_run_mode not in (0, 1):
        raise ValueError('"graph_run_mode" value must be 0 or 1')
    if enable_profiling:
        if profiling_options is None:
            raise ValueError("profiling_options must be set when use profiling")
        _fusion.profile(profiling_options)
    for name in options:
        _log.without_effect(f"npu_resource_init({name}=)")
    _world.join_as_told()


def npu_resource_shutdown() -> None:
    _world.leave()


def npu_close() -> None:
    _world.leave()


_WHY = "it concerns addresses of NPU memory"
init_rdma_pool = _absent.function("npu_plugin.init_rdma_pool", _WHY)
rdma_remote_register = _absent.function("npu_plugin.rdma_remote_register", _WHY)
rdma_remote_init = _absent.function("npu_plugin.rdma_remote_init", _WHY)
get_var_addr_and_size = _absent.function("npu_plugin.get_var_addr_and_size", _WHY)
malloc_shared_memory = _absent.function("npu_plugin.malloc_shared_memory", _WHY)
get_rdma_cache = _absent.function("npu_plugin.get_rdma_cache", _WHY)
