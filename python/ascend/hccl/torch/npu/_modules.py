"""The names of each module."""

import functools
import types
from typing import Any

import torch

from hccl.torch.npu import (
    _apex,
    _apex_optimizers,
    _apex_utils,
    _calls,
    _checkpoints,
    _combine,
    _compile,
    _detection,
    _groups,
    _operators,
    _optimizers,
    _parallel,
    _profiler,
    _streams,
)

# Names of Ascend's files, from which scripts also import the classes.
_FILES = {"NpuFusedBertAdam": "bert_adam", "NpuFusedRMSpropTF": "rmsprop_tf"}


def contents() -> dict:
    """Returns the names of each module, by the module's path, parents first."""
    utils = {
        "npu_combine_tensors": _combine.npu_combine_tensors,
        "get_part_combined_tensor": _combine.get_part_combined_tensor,
        "is_combined_tensor_valid": _combine.is_combined_tensor_valid,
        "clip_grad_norm_fused_": _optimizers.clip_grad_norm_fused_,
    }
    groups = {"ProcessGroupHCCL": _groups.ProcessGroupHCCL}
    refused = {"__getattr__": _operators.missing}
    base = {"NpuFusedOptimizerBase": _optimizers.NpuFusedOptimizerBase}
    return {
        "torch_npu": {
            "__version__": torch.__version__.partition("+")[0],
            "Format": _checkpoints.Format,
            "npu_change_data_ptr": _combine.npu_change_data_ptr,
            **utils,
            **_operators.OPERATORS,
            **refused,
        },
        "torch_npu._C": {"_npu_get_soc_version": _calls.get_soc_version},
        "torch_npu._C._distributed_c10d": groups,
        "torch_npu.distributed": {"is_hccl_available": lambda: True, **groups},
        "torch_npu.optim": {**_optimizers.OPTIMIZERS, **base},
        "torch_npu.optim.npu_fused_optim_base": base,
        **{
            f"torch_npu.optim.npu_fused_{_FILES.get(name, name[8:].lower())}": {name: one}
            for name, one in _optimizers.OPTIMIZERS.items()
        },
        "torch_npu.utils": utils,
        "torch_npu.utils.profiler": {"Profile": _profiler.Profile},
        "torch_npu.utils.storage": {"_rebuild_npu_tensor": _checkpoints._rebuild_npu_tensor},
        "torch_npu.profiler": _profiler.contents(),
        **_profiler.modules(),
        **_npu_contents(),
        "torch_npu.contrib": {},
        "torch_npu.contrib.function": {
            **{name: one for name, one in _operators.OPERATORS.items() if name.endswith("iou")},
            "roll": torch.roll,
            **refused,
        },
        "torch_npu.contrib.module": {
            **{"Mish": torch.nn.Mish, "SiLU": torch.nn.SiLU, "Swish": torch.nn.SiLU},
            "NpuPreGenDropout": _operators.NpuPreGenDropout,
            "ROIAlign": _detection.ROIAlign,
            **refused,
        },
        **_apex_contents(refused),
        **_compile.contents(),
    }


def _npu_contents() -> dict:
    """Returns the names of torch_npu.npu and its modules."""
    casts = {
        "autocast": _Autocast,
        "custom_fwd": functools.partial(torch.amp.custom_fwd, device_type="cpu"),
        "custom_bwd": functools.partial(torch.amp.custom_bwd, device_type="cpu"),
    }
    scaler = {"GradScaler": _optimizers.GradScaler}
    calls = _calls.contents()
    return {
        "torch_npu.npu": {**calls, "profile": _profiler.profile_of_block},
        "torch_npu.npu._format": {"Format": _checkpoints.Format},
        "torch_npu.npu.memory": _calls.memory(),
        "torch_npu.npu.random": _random(calls),
        "torch_npu.npu.streams": {"Stream": _streams.Stream, "Event": _streams.Event},
        "torch_npu.npu.utils": {
            "npu_check_overflow": _calls.npu_check_overflow,
            "is_support_inf_nan": lambda: True,
            "get_soc_version": _calls.get_soc_version,
        },
        "torch_npu.npu.amp": {**casts, **scaler},
        "torch_npu.npu.amp.autocast_mode": casts,
        "torch_npu.npu.amp.grad_scaler": scaler,
    }


def _random(calls: dict) -> dict:
    """Returns the names of torch_npu.npu.random: functions of torch_npu.npu, and fork_rng."""
    names = (
        *("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all"),
        *("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed"),
    )

    def fork_rng(devices: Any = None, enabled: bool = True, **_: Any) -> Any:
        return torch.random.fork_rng((), enabled=enabled)

    # Python functions, because torch.compile also knows the built-in functions by other names.
    return {**{name: _function(calls[name]) for name in names}, "fork_rng": fork_rng}


def _function(call: Any) -> Any:
    @functools.wraps(call)
    def function(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return call if isinstance(call, types.FunctionType) else function


def _apex_contents(refused: dict) -> dict:
    functions = (
        *("initialize", "scale_loss", "master_params", "state_dict", "load_state_dict"),
        *("half_function", "float_function", "promote_function", "disable_casts", "_amp_state"),
        *("register_half_function", "register_float_function", "register_promote_function"),
    )
    return {
        "apex": {},
        "apex.parallel": {
            "DistributedDataParallel": _parallel.DistributedDataParallel,
            "SyncBatchNorm": _parallel.SyncBatchNorm,
            "convert_syncbn_model": _parallel.convert_syncbn_model,
            "LARC": _apex_utils.LARC,
        },
        "apex.multi_tensor_apply": {
            "MultiTensorApply": _apex_utils.MultiTensorApply,
            "multi_tensor_applier": _apex_utils.multi_tensor_applier,
        },
        "apex.fp16_utils": _apex_utils.FP16_UTILS,
        **dict.fromkeys(
            ("apex.normalization", "apex.normalization.fused_layer_norm"),
            {"FusedLayerNorm": torch.nn.LayerNorm},
        ),
        "apex.contrib": {},
        "apex.contrib.combine_tensors": {"combine_npu": _combine.npu_combine_tensors},
        "apex.amp": {name: getattr(_apex, name) for name in functions},
        "apex.amp._amp_state": {
            "_amp_state": _apex._amp_state,
            "master_params": _apex.master_params,
        },
        "apex.amp.frontend": {"Properties": _apex.Properties, "opt_levels": _apex.LEVELS},
        "apex.optimizers": {
            **_optimizers.OPTIMIZERS,
            "Lamb": _optimizers.OPTIMIZERS["NpuFusedLamb"],
            **_optimizers.APEXS,
            **_apex_optimizers.APEXS,
            **refused,
        },
    }


class _Autocast(torch.autocast):
    """torch.npu.amp.autocast."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, **rest: Any
    ) -> None:
        super().__init__("cpu", dtype=dtype, enabled=enabled, **rest)
