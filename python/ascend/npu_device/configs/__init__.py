"""global_options(): the options that scripts set before open(). They are checked and stored; on a
CPU only `hcom_parallel` and `profiling_config` have an effect."""

from __future__ import annotations

from typing import Any

from hccl.tensorflow import _log

_ANY = object()
_SWITCH = (True, False)
_PRECISIONS = (
    "force_fp32",
    "allow_fp32_to_fp16",
    "force_fp16",
    "must_keep_origin_dtype",
    "allow_mix_precision",
    "cube_fp16in_fp32out",
    "allow_mix_precision_fp16",
    "allow_mix_precision_bf16",
    "allow_fp32_to_bf16",
)
_PRECISIONS_V2 = (
    "fp16",
    "origin",
    "cube_fp16in_fp32out",
    "mixed_float16",
    "mixed_bfloat16",
    "cube_hif8",
    "mixed_hif8",
)
# Options for older scripts, and options without a check.
_UNCHECKED = (
    "allow_fp32_to_fp16 auto_tune_mode autotune_tune_mode buffer_optimize customize_dtypes "
    "debug_dir device_type distribute_config enable_scope_fusion_passes es_cluster_config "
    "fusion_switch_file graph_exec_timeout graph_memory_max_size hcom_multi_mode modify_mixlist "
    "op_compiler_cache_dir op_debug_config op_debug_level op_precision_mode op_select_implmode "
    "optypelist_for_implmode quant_dumpable resource_config_path session_device_id "
    "static_memory_policy stream_max_parallel_num variable_format_optimize "
    "variable_memory_max_size variable_memory_optimize all_tensor_not_empty "
    "auto_multistream_parallel_mode export_compile_stat aicore_num jit_compile_mode "
    "ac_parallel_enable graph_compiler_cache_dir optimization_switch"
).split()
# name: (initial value, valid values)
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "graph_run_mode": (1, (0, 1)),
    "hcom_parallel": (True, _SWITCH),
    "is_tailing_optimization": (False, _SWITCH),
    "deterministic": (0, (0, 1)),
    "precision_mode": (None, (None, *_PRECISIONS)),
    "precision_mode_v2": (None, (None, *_PRECISIONS_V2)),
    "op_compiler_cache_mode": ("enable", ("enable", "disable", "force")),
    "enable_exception_dump": (2, (0, 1, 2)),
    "overflow_flag": (1, (0, 1)),
    "jit_compile": ("auto", ("true", "false", "auto", *_SWITCH)),
    "stream_sync_timeout": (-1, _ANY),
    "event_sync_timeout": (-1, _ANY),
    "execute_times": (-1, _ANY),
    "external_weight": (False, _SWITCH),
    "enable_small_channel": (False, _SWITCH),
    "compile_dynamic_mode": (False, _SWITCH),
    "input_batch_cpy": (False, _SWITCH),
    "oo_constant_folding": (True, _SWITCH),
    "input_fusion_size": (131072, _ANY),
    "topo_sorting_mode": (None, (0, 1, None)),
    "oo_level": ("O3", ("O0", "O1", "O2", "O3")),
    "shape_generalization_mode": ("STRICT", ("STRICT", "FULL", "ADAPTIVE")),
    **dict.fromkeys(_UNCHECKED, (None, _ANY)),
}
_PARTS = ("dump_config", "aoe_config", "profiling_config", "memory_config", "experimental")


class _Part:
    """A group of options. The options may have any names."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._name != "profiling_config":
            _log.without_effect(f"{self._name}.{name}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name == "experimental":
            object.__setattr__(self, name, _Part(name))
            return object.__getattribute__(self, name)
        return None


class GlobalOptions:
    """The options of this process. ValueError: an option does not exist, or its value is
    invalid."""

    def __init__(self) -> None:
        for name, (value, _) in _OPTIONS.items():
            object.__setattr__(self, name, value)
        for name in _PARTS:
            object.__setattr__(self, name, _Part(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PARTS:
            object.__setattr__(self, name, value)
            return
        if name not in _OPTIONS:
            raise ValueError(f"Global option {name} is not available")
        allowed = _OPTIONS[name][1]
        if allowed is not _ANY and value not in allowed:
            raise ValueError(f"'{value}' is not allowed for {name}: it is one of {list(allowed)}")
        if name != "hcom_parallel":
            _log.without_effect(f"global_options().{name}")
        object.__setattr__(self, name, value)


_options = GlobalOptions()


def global_options() -> GlobalOptions:
    return _options


class run_context_options(_Part):  # noqa: N801  Ascend's name
    def __init__(self, **options: Any) -> None:
        super().__init__("run_context_options")
        for name, value in options.items():
            setattr(self, name, value)
