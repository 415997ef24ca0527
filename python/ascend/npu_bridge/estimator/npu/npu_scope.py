"""Contexts that control an NPU's compiler. On a CPU they only check their arguments."""

from __future__ import annotations

from typing import Any

from npu_device._kept import scope

from npu_bridge.estimator.npu.npu_config import NpuExecutePlacement

_variable_scope = scope("npu_scope.npu_variable_scope")


def npu_variable_scope(placement: NpuExecutePlacement = NpuExecutePlacement.ALL) -> Any:
    if not isinstance(placement, NpuExecutePlacement):
        raise ValueError("placement: expected a value of NpuExecutePlacement")
    return _variable_scope()


without_npu_compile_scope = scope("npu_scope.without_npu_compile_scope")
keep_dtype_scope = scope("npu_scope.keep_dtype_scope")
npu_stage_scope = scope("npu_scope.npu_stage_scope", "stage")
npu_mem_type_scope = scope("npu_scope.npu_mem_type_scope")
npu_weight_prefetch_scope = scope(
    "npu_scope.npu_weight_prefetch_scope", buffer_pool_id=0, buffer_pool_size=536870912
)
op_specified_engine_scope = scope(
    "npu_scope.op_specified_engine_scope", "engine_name", "kernel_lib_name"
)
npu_qos_label_scope = scope("npu_scope.npu_qos_label_scope", "label")
subgraph_multi_dims_scope = scope("npu_scope.subgraph_multi_dims_scope", "index")
npu_optimizer_scope = scope("npu_scope.npu_optimizer_scope")
npu_recompute_scope = scope("npu_scope.npu_recompute_scope")
npu_graph_slice_scope = scope("npu_scope.npu_graph_slice_scope", slice_num=None)
disable_autofuse = scope("npu_scope.disable_autofuse")
limit_core_num_scope = scope(
    "npu_scope.limit_core_num_scope", op_aicore_num="0", op_vectorore_num="0"
)
