"""npu_plugin: explicit start and end of the NPU. On a CPU, the start joins the ranks and the end
leaves the world."""

from __future__ import annotations

from typing import Any, Optional

from hccl import _world
from hccl.tensorflow import _fusion, _log
from npu_device import is_inf_nan_enabled as is_inf_nan_enabled
from npu_device import set_device_sat_mode as set_device_sat_mode
from npu_device._kept import absent


def npu_resource_init(
    graph_run_mode: int = 1,
    op_debug_level: int = 0,
    enable_profiling: bool = False,
    profiling_options: Optional[str] = None,
    **options: Any,
) -> None:
    """Joins the ranks. ValueError: graph_run_mode is not 0 or 1, or enable_profiling is set without
    profiling_options."""
    if graph_run_mode not in (0, 1):
        raise ValueError('"graph_run_mode" value must be 0 or 1')
    if enable_profiling:
        if profiling_options is None:
            raise ValueError("profiling_options must be set when use profiling")
        _fusion.profile(profiling_options)
    for name in options:
        _log.without_effect(f"npu_resource_init({name}=)")
    _world.join_as_told()


npu_resource_shutdown = npu_close = _world.leave

_WHY = "it concerns addresses of NPU memory"
init_rdma_pool = absent("npu_plugin.init_rdma_pool", _WHY)
rdma_remote_register = absent("npu_plugin.rdma_remote_register", _WHY)
rdma_remote_init = absent("npu_plugin.rdma_remote_init", _WHY)
get_var_addr_and_size = absent("npu_plugin.get_var_addr_and_size", _WHY)
malloc_shared_memory = absent("npu_plugin.malloc_shared_memory", _WHY)
get_rdma_cache = absent("npu_plugin.get_rdma_cache", _WHY)
