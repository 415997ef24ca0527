"""Changes sessions. They enable the graph optimizer that orders collectives, and a run of
IterationOp makes all steps of a loop."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Iterator

import numpy as np
import tensorflow as tf
from hccl.tensorflow import _fusion, _log, _ops
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from npu_bridge import _loops

ITERATION_OP = "IterationOp"
# For each session: how many steps a run of IterationOp makes after the first, and the loop for these steps.
_repeats: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_loops_of: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_callables: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def complete(config: Any) -> config_pb2.ConfigProto:
    """Adds to the config, in place, the settings that a session needs on an NPU, and returns the
    config. Makes a new config if it is None."""
    if not isinstance(config, config_pb2.ConfigProto):
        config = config_pb2.ConfigProto()
    config.allow_soft_placement = True
    config.log_device_placement = False
    rewrite = config.graph_options.rewrite_options
    rewrite.remapping = rewriter_config_pb2.RewriterConfig.OFF
    config.graph_options.optimizer_options.global_jit_level = config_pb2.OptimizerOptions.OFF
    if not any(each.name == "NpuOptimizer" for each in rewrite.custom_optimizers):
        rewrite.custom_optimizers.add().name = "NpuOptimizer"
        rewrite.memory_optimization = rewriter_config_pb2.RewriterConfig.OFF
    parameters = npu_parameters(config)
    if "profiling_mode" in parameters and parameters["profiling_mode"].b:
        options = parameters["profiling_options"].s if "profiling_options" in parameters else b""
        _fusion.profile(options.decode())
    return config


def npu_parameters(config: config_pb2.ConfigProto) -> Any:
    """Returns the parameter_map of the config's NpuOptimizer."""
    optimizers = config.graph_options.rewrite_options.custom_optimizers
    return next(each.parameter_map for each in optimizers if each.name == "NpuOptimizer")


def load_loop(session: Any, iterations_per_loop: int) -> None:
    """Sets the number of steps that each later run of IterationOp makes in this session."""
    _repeats[_base_of(session)] = iterations_per_loop - 1
    if iterations_per_loop == 1:
        say_one(ITERATION_OP)


def say_one(name: str) -> None:
    """Logs once that `name` makes only one step in each session.run."""
    _log.once(f"{name} makes 1 step a session.run")


def install(tensorflow: Any) -> None:
    """Changes the session classes, once in a process."""
    v1 = tensorflow.compat.v1
    if getattr(v1.Session, "_hccl", False):
        return
    base = v1.Session.__mro__[1]  # BaseSession
    v1.Session._hccl = True
    for kind in (v1.Session, v1.InteractiveSession):
        kind.__init__ = decorator_tf_session(kind.__init__)
    run = base.run

    def run_loop(self: Any, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        repeats = _repeats.get(self, 0)
        if repeats > 0:
            step = next((fetch for fetch in _leaves(fetches) if _is_iteration_op(fetch)), None)
            if step is not None:
                _repeat(self, run, step, feed_dict or {}, repeats)
        return run(self, fetches, feed_dict, *args, **kwargs)

    base.run = run_loop


def decorator_tf_session(made: Any) -> Any:
    """Returns a session's __init__ that completes the config."""

    @functools.wraps(made)
    def init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        self._session = None  # for __del__, if the ops cannot be built
        _ops.library()  # TensorFlow must know the optimizer's name
        made(self, target=target, graph=graph, config=complete(config))

    return init


def _base_of(session: Any) -> Any:
    """Returns the plain session inside the session of a MonitoredSession or a Supervisor."""
    while hasattr(session, "_sess") and session._sess is not None:
        session = session._sess
    return session


def _leaves(fetches: Any) -> Iterator[Any]:
    # Does not use tf.nest: a MonitoredSession's fetches are a dictionary with hooks as keys.
    if isinstance(fetches, dict):
        fetches = fetches.values()
    elif not isinstance(fetches, (list, tuple)):
        yield fetches
        return
    for fetch in fetches:
        yield from _leaves(fetch)


def _is_iteration_op(fetch: Any) -> bool:
    name = fetch if isinstance(fetch, str) else getattr(fetch, "name", None)
    return isinstance(name, str) and name.split("/")[-1] == ITERATION_OP


def _repeat(session: Any, run: Any, step: Any, feeds: dict, times: int) -> None:
    """Makes `times` steps on the same feed; the caller makes one more, the last. Uses a While if
    possible, otherwise a callable, or plain runs for sparse feeds. The While or callable is made
    once."""
    graph = session.graph
    step = graph.as_graph_element(step, allow_tensor=False)
    tensors = [
        graph.as_graph_element(each, allow_operation=False)
        for key in feeds
        for each in tf.nest.flatten(key, expand_composites=True)
    ]
    names = tuple(tensor.name for tensor in tensors)
    loops = _loops_of.setdefault(session, {})
    key = (step.name, *names)
    if key not in loops:
        loops[key] = _loops.made(graph, step, tensors)
        how = "one by one" if loops[key] is None else "in a While of the graph"
        _log.once(f"{step.name} makes {times + 1} steps a session.run, {how}")
    if loops[key] is not None:
        run(session, loops[key].operation, {**feeds, loops[key].steps: times})
        return
    if len(tensors) != len(feeds):  # sparse tensors
        for _ in range(times):
            run(session, step, feeds)
        return
    known = _callables.setdefault(session, {})
    if key not in known:
        # Does not call Session.run, because it would call this function again.
        known[key] = session._make_callable_from_options(
            config_pb2.CallableOptions(feed=names, target=[step.name])
        )
    values = [
        np.asarray(value, dtype=tensor.dtype.as_numpy_dtype)
        for tensor, value in zip(tensors, feeds.values())
    ]
    for _ in range(times):
        known[key](*values)
