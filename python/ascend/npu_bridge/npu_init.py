"""from npu_bridge.npu_init import *: imports tf and the names that scripts for Ascend's TensorFlow
1 use."""

from __future__ import annotations

import os
from typing import Any

from hccl.manage.api import (
    create_group,
    destroy_group,
    get_group_rank_from_world_rank,
    get_local_rank_id,
    get_local_rank_size,
    get_rank_id,
    get_rank_size,
    get_world_rank_from_group_rank,
)
from hccl.split.api import set_split_strategy_by_idx, set_split_strategy_by_size
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.client import session
from tensorflow.python.training import session_run_hook

from npu_bridge import _ranks, _session, tf
from npu_bridge._ranks import rank as get_npu_rank_id, size as get_npu_rank_size
from npu_bridge.estimator import npu_aicore_ops, npu_ops, npu_unary_ops
from npu_bridge.estimator.npu import (
    keras_to_npu,
    npu_plugin,
    npu_rnn,
    npu_scope,
    npu_strategy,
    util,
)
from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
from npu_bridge.estimator.npu.npu_config import (
    DumpConfig,
    DynamicInputConfig,
    ExperimentalConfig,
    MemoryConfig,
    NPURunConfig,
    ProfilingConfig,
    decorator_tf_session,
    need_estimator as _need_estimator,
)
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator, NPUEstimatorSpec
from npu_bridge.estimator.npu.npu_hook import (
    NPUBroadcastGlobalVariablesHook,
    NPUCheckpointSaverHook,
    NpuEmptyHook,
    NPUOutputTensorHook,
    SetIterationsVarHook,
    TellMeStepOrLossHook,
)
from npu_bridge.estimator.npu.npu_loss_scale_manager import (
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
)
from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
from npu_bridge.estimator.npu.npu_optimizer import (
    KerasDistributeOptimizer,
    NPUDistributedOptimizer,
    NPUOptimizer,
    npu_allreduce,
    npu_distributed_optimizer_wrapper,
)
from npu_bridge.hccl import hccl_ops
from npu_bridge.npu_cpu import npu_cpu_ops
from npu_bridge.profiler import profiler
from npu_bridge.scoped_graph_manager import scoped_graph_manager

backend = tf.compat.v1.keras.backend
# Scripts give it to tf.config.optimizer.set_experimental_options.
experimental_options: dict[str, Any] = {
    "disable_model_pruning": False,
    "layout_optimizer": RewriterConfig.ON,
    "constant_folding": RewriterConfig.ON,
    **{
        f"{kind}_optimization": RewriterConfig.ON
        for kind in ("function", "shape", "arithmetic", "loop", "dependency")
    },
}


def npu_config_proto(config_proto: Any = None) -> config_pb2.ConfigProto:
    """Adds the settings for sessions on an NPU to the config, in place, or makes a new config."""
    return _session.complete(config_proto)


def npu_graph_options(graph_options: Any = None) -> config_pb2.GraphOptions:
    if not isinstance(graph_options, config_pb2.GraphOptions):
        graph_options = config_pb2.GraphOptions()
    graph_options.optimizer_options.global_jit_level = config_pb2.OptimizerOptions.OFF
    return graph_options


def npu_optimizer_options(optimizer_options: Any = None) -> config_pb2.OptimizerOptions:
    if not isinstance(optimizer_options, config_pb2.OptimizerOptions):
        optimizer_options = config_pb2.OptimizerOptions()
    optimizer_options.global_jit_level = config_pb2.OptimizerOptions.OFF
    return optimizer_options


def npu_run_config_init(run_config: Any = None) -> Any:
    """Returns a tf.estimator.RunConfig whose sessions have npu_config_proto's config."""
    _need_estimator("npu_run_config_init")
    if not isinstance(run_config, tf.estimator.RunConfig):
        run_config = tf.estimator.RunConfig()
    config = npu_config_proto(run_config.session_config)
    return run_config.replace(session_config=config)


def set_keras_session_npu_config(config: Any = None) -> Any:
    if not hasattr(backend, "set_session"):
        raise ImportError(
            "set_keras_session_npu_config: Keras 3 has no sessions; TF_USE_LEGACY_KERAS=1 and the "
            "package tf_keras bring Keras 2 back"
        )
    made = tf.compat.v1.Session(config=npu_config_proto(config))
    backend.set_session(made)
    return made


def npu_clear_session(config: Any = None) -> None:
    backend.clear_session()
    set_keras_session_npu_config(config)


def init_resource(config: Any = None) -> tuple:
    """Joins the ranks and returns (a session, the op for shutdown_resource)."""
    made = tf.compat.v1.Session(config=npu_config_proto(config))
    with made.graph.as_default():
        start, stop = npu_ops.initialize_system(), npu_ops.shutdown_system()
    made.run(start)
    return made, stop


def shutdown_resource(sess: Any, npu_shutdown: Any) -> None:
    sess.run(npu_shutdown)


def close_session(sess: Any) -> None:
    sess.close()


def get_npu_local_rank_id() -> int:
    _ranks.size()
    return get_local_rank_id()


def get_npu_local_rank_size() -> int:
    _ranks.size()
    return get_local_rank_size()


def npu_hooks_append(hooks_list: Any = ()) -> list:
    hooks = hooks_list if isinstance(hooks_list, list) else []
    hooks.append(NPUBroadcastGlobalVariablesHook(0))
    return hooks


def npu_callbacks_append(callbacks_list: Any = ()) -> list:
    callbacks = callbacks_list if isinstance(callbacks_list, list) else []
    callbacks.append(NPUBroadcastGlobalVariablesCallback(0))
    return callbacks


def npu_keras_optimizer(opt: Any) -> Any:
    return KerasDistributeOptimizer(opt)


def npu_tf_optimizer(opt: Any) -> Any:
    return NPUDistributedOptimizer(opt)


__all__ = [name for name in dir() if not name.startswith("_") and name not in ("Any", "annotations")]
