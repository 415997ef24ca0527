"""Contexts that control an NPU's compiler. On a CPU they only check their arguments."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional

from hccl.tensorflow import _log

from npu_bridge.estimator.npu.npu_config import NpuExecutePlacement


@contextlib.contextmanager
def _nothing(name: str) -> Iterator[None]:
    _log.without_effect(f"npu_scope.{name}")
    yield


def without_npu_compile_scope() -> Any:
    return _nothing("without_npu_compile_scope")


def npu_variable_scope(placement: NpuExecutePlacement = NpuExecutePlacement.ALL) -> Any:
    if not isinstance(placement, NpuExecutePlacement):
        raise ValueError("placement: expected a value of NpuExecutePlacement")
    return _nothing("npu_variable_scope")


def keep_dtype_scope() -> Any:
    return _nothing("keep_dtype_scope")


def npu_stage_scope(stage: int) -> Any:
    return _nothing("npu_stage_scope")


def npu_mem_type_scope() -> Any:
    return _nothing("npu_mem_type_scope")


def npu_weight_prefetch_scope(buffer_pool_id: int = 0, buffer_pool_size: int = 536870912) -> Any:
    return _nothing("npu_weight_prefetch_scope")


def op_specified_engine_scope(engine_name: str, kernel_lib_name: str) -> Any:
    return _nothing("op_specified_engine_scope")


def npu_qos_label_scope(label: int) -> Any:
    return _nothing("npu_qos_label_scope")


def subgraph_multi_dims_scope(index: int) -> Any:
    return _nothing("subgraph_multi_dims_scope")


def npu_optimizer_scope() -> Any:
    return _nothing("npu_optimizer_scope")


def npu_recompute_scope() -> Any:
    return _nothing("npu_recompute_scope")


def npu_graph_slice_scope(slice_num: Optional[int] = None) -> Any:
    return _nothing("npu_graph_slice_scope")


def disable_autofuse() -> Any:
    return _nothing("disable_autofuse")


def limit_core_num_scope(op_aicore_num: str = "0", op_vectorore_num: str = "0") -> Any:
    return _nothing("limit_core_num_scope")
