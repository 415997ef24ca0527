"""NPURunConfig and its parts. Options are checked and stored. Those with a meaning on a CPU are
used."""

from __future__ import annotations

import difflib
import enum
import inspect
from typing import Any, Optional

import tensorflow as tf
from hccl.tensorflow import _fusion

from npu_bridge import _session
from npu_bridge._session import decorator_tf_session as decorator_tf_session


def _keep(owner: Any, /, **options: Any) -> None:
    """Stores arguments as attributes, even if the owner's class rejects new attributes."""
    for name, value in options.items():
        object.__setattr__(owner, f"_{name}", value)


class _Kept:
    def __init__(self, **options: Any) -> None:
        _keep(self, **options)


class ProfilingConfig(_Kept):
    def __init__(
        self, enable_profiling: bool = False, profiling_options: Optional[str] = None
    ) -> None:
        super().__init__(enable_profiling=enable_profiling, profiling_options=profiling_options)


class DumpConfig(_Kept):
    def __init__(
        self,
        enable_dump: bool = False,
        dump_path: Optional[str] = None,
        dump_step: Optional[str] = None,
        dump_mode: str = "output",
        enable_dump_debug: bool = False,
        dump_debug_mode: str = "all",
        **options: Any,
    ) -> None:
        super().__init__(
            enable_dump=enable_dump,
            dump_path=dump_path,
            dump_step=dump_step,
            dump_mode=dump_mode,
            enable_dump_debug=enable_dump_debug,
            dump_debug_mode=dump_debug_mode,
            **options,
        )


class NpuExecutePlacement(enum.Enum):
    ALL = "all"
    CUBE = "cube"
    VECTOR = "vector"
    TAISHAN = "taishan"
    DVPP = "dvpp"
    HOST = "host"


class MemoryConfig(_Kept):
    pass


class DynamicInputConfig(_Kept):
    def __init__(
        self,
        input_shape: str,
        dynamic_dims: str,
        dynamic_node_type: int,
        compile_hybrid_mode: int = 0,
    ) -> None:
        if dynamic_node_type not in (0, 1):
            raise ValueError("dynamic_node_type should be 0 or 1")
        super().__init__(
            input_shape=input_shape,
            dynamic_dims=dynamic_dims,
            dynamic_node_type=dynamic_node_type,
            compile_hybrid_mode=compile_hybrid_mode,
        )


class GraphMemoryOptimizeConfig(_Kept):
    def __init__(
        self, recompute: Optional[str] = None, graph_slice: Optional[str] = None
    ) -> None:
        for name, value in {"recompute": recompute, "graph_slice": graph_slice}.items():
            if value not in (None, "auto", "manual"):
                raise ValueError(f'{name} must be "auto" or "manual"')
        super().__init__(recompute=recompute, graph_slice=graph_slice)


class ExperimentalConfig(_Kept):
    pass


# NPURunConfig's other arguments; those in the last line are from older releases.
_KEPT_OPTIONS = frozenset((
    "distribute dump_config stream_max_parallel_num is_tailing_optimization horovod_mode "
    "graph_run_mode op_debug_level enable_scope_fusion_passes enable_exception_dump "
    "op_select_implmode optypelist_for_implmode dynamic_input_config aoe_mode work_path "
    "buffer_optimize enable_small_channel fusion_switch_file enable_compress_weight "
    "compress_weight_conf op_compiler_cache_mode op_compiler_cache_dir debug_dir "
    "hcom_multi_mode dynamic_input dynamic_graph_execute_mode dynamic_inputs_shape_range "
    "local_rank_id local_device_list session_device_id "
    "distribute_config modify_mixlist op_precision_mode device_type soc_config hccl_timeout "
    "op_wait_timeout op_execute_timeout HCCL_algorithm customize_dtypes op_debug_config "
    "memory_config experimental_config topo_sorting_mode aoe_config_file insert_op_file "
    "stream_sync_timeout event_sync_timeout external_weight deterministic frozen_variable "
    "variable_placement jit_compile precision_mode_v2 ac_parallel_enable quant_dumpable "
    "input_fusion_size compile_dynamic_mode graph_max_parallel_model_num export_compile_stat "
    "aicore_num oo_constant_folding input_batch_cpy shape_generalization_mode "
    "all_tensor_not_empty auto_multistream_parallel_mode oo_level optimization_switch "
    "auto_tune_mode mstune_mode enable_auto_mix_precision"
).split())

_RunConfig = getattr(getattr(tf, "estimator", None), "RunConfig", object)


def need_estimator(name: str) -> None:
    if _RunConfig is object:
        raise ImportError(
            f"{name}: this TensorFlow has no Estimator; use TensorFlow 2.15, or a session with "
            "util.set_iteration_per_loop"
        )


def _similar(name: str) -> str:
    known = [*inspect.signature(NPURunConfig.__init__).parameters, *_KEPT_OPTIONS]
    found = difflib.get_close_matches(name, known, 1)
    return f'; is it "{found[0]}"?' if found else ""


def _check_kept(options: dict[str, Any]) -> None:
    """Checks, as on an NPU, the arguments that are only stored."""
    for name in options:
        if name not in _KEPT_OPTIONS:
            raise TypeError(f'NPURunConfig: there is no argument "{name}"{_similar(name)}')
    kinds = {
        "dump_config": DumpConfig,
        "dynamic_input_config": DynamicInputConfig,
        "experimental_config": ExperimentalConfig,
    }
    for name, kind in kinds.items():
        if options.get(name) is not None and not isinstance(options[name], kind):
            raise ValueError(f"{name}: expected a {kind.__name__}")
    if not isinstance(options.get("horovod_mode", False), bool):
        raise ValueError("horovod_mode must be True or False")
    if options.get("graph_run_mode", 1) not in (0, 1):
        raise ValueError("graph_run_mode must be 0 or 1")
    if not isinstance(options.get("jit_compile", ""), str):
        raise TypeError('jit_compile: expected "true", "false" or "auto"')


def _check_loop(iterations_per_loop: int, mix_compile_mode: bool) -> None:
    if not isinstance(iterations_per_loop, int) or iterations_per_loop < 1:
        raise ValueError("iterations_per_loop must be a positive integer")
    if not isinstance(mix_compile_mode, bool):
        raise ValueError("mix_compile_mode must be True or False")
    if mix_compile_mode and iterations_per_loop != 1:
        raise ValueError("iterations_per_loop must be 1 with mix_compile_mode")


def _saving(steps: Optional[int], secs: Optional[int]) -> dict[str, int]:
    """Returns the argument of RunConfig that sets how often checkpoints are written."""
    if steps is not None and secs is not None:
        raise ValueError(
            "save_checkpoints_steps and save_checkpoints_secs cannot be given together"
        )
    if secs is not None:
        return {"save_checkpoints_secs": secs}
    return {"save_checkpoints_steps": steps or 100}


class NPURunConfig(_RunConfig):
    """tf.estimator.RunConfig with Ascend's arguments. iterations_per_loop: number of steps in a
    session.run. Ascend's other arguments are stored in attributes with an underscore before the
    name."""

    def __init__(
        self,
        iterations_per_loop: int = 1,
        profiling_config: Optional[ProfilingConfig] = None,
        model_dir: Optional[str] = None,
        tf_random_seed: Optional[int] = None,
        save_summary_steps: int = 0,
        save_checkpoints_steps: Optional[int] = None,
        save_checkpoints_secs: Optional[int] = None,
        session_config: Any = None,
        keep_checkpoint_max: int = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int = 100,
        enable_data_pre_proc: bool = True,
        precision_mode: Optional[str] = None,
        enable_reduce_precision: bool = False,
        variable_format_optimize: bool = True,
        mix_compile_mode: bool = False,
        hcom_parallel: bool = True,
        graph_memory_max_size: Optional[str] = None,
        variable_memory_max_size: Optional[str] = None,
        train_distribute: Any = None,
        eval_distribute: Any = None,
        **options: Any,
    ) -> None:
        need_estimator("NPURunConfig")
        _check_kept(options)
        _check_loop(iterations_per_loop, mix_compile_mode)
        saving = _saving(save_checkpoints_steps, save_checkpoints_secs)
        session_config = _session.complete(session_config)
        _session.npu_parameters(session_config)["hcom_parallel"].b = hcom_parallel
        if profiling_config is not None and profiling_config._enable_profiling:
            _fusion.profile(profiling_config._profiling_options or "")
        super().__init__(
            model_dir=model_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            session_config=session_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            train_distribute=train_distribute,
            eval_distribute=eval_distribute,
            **saving,
        )
        _keep(
            self,
            iterations_per_loop=iterations_per_loop,
            profiling_config=profiling_config,
            enable_data_pre_proc=enable_data_pre_proc,
            precision_mode=precision_mode,
            enable_reduce_precision=enable_reduce_precision,
            variable_format_optimize=variable_format_optimize,
            mix_compile_mode=mix_compile_mode,
            hcom_parallel=hcom_parallel,
            graph_memory_max_size=graph_memory_max_size,
            variable_memory_max_size=variable_memory_max_size,
            **options,
        )
        self.iterations_per_loop = iterations_per_loop
