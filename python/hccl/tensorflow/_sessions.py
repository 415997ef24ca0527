"""Optimizers, variables and hooks of TensorFlow 1's graphs and sessions."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Sequence

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from hccl import _horovod
from hccl.tensorflow import _names, _reductions
from hccl.tensorflow._collectives import broadcast_variables


def order_collectives() -> None:
    """Makes all later sessions keep the order of collectives, once in a process. They request the
    graph optimizer "NpuOptimizer" (src/order.cc). TensorFlow looks the name up in each run, so a
    session may exist before the ops are loaded."""
    base = tf.compat.v1.Session.__mro__[1]  # BaseSession
    made = base.__init__

    @functools.wraps(made)
    def init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        given = context.context().config if config is None else config
        if isinstance(given, config_pb2.ConfigProto):  # otherwise TensorFlow raises a TypeError
            config = config_pb2.ConfigProto()
            config.CopyFrom(given)
            # TensorFlow does not optimize small graphs, nor those that it prunes before it places
            # them, as an InteractiveSession does. Without soft placement, pruning may be what makes
            # a graph run.
            if config.allow_soft_placement:
                config.graph_options.place_pruned_graph = False
            rewrite = config.graph_options.rewrite_options
            rewrite.min_graph_nodes = -1
            if not any(each.name == "NpuOptimizer" for each in rewrite.custom_optimizers):
                rewrite.custom_optimizers.add().name = "NpuOptimizer"
        made(self, target, graph, config)

    base.__init__ = init


order_collectives()


def reducing(optimizer: Any, reduce: Callable[[list, list], list], place: Any) -> Any:
    """Changes an optimizer of tf.compat.v1.train so that compute_gradients, and so minimize,
    reduces gradients. apply_gradients reduces those of variables for which compute_gradients was
    not called, as in `fit` or with a tf.GradientTape. place: as for _optimizers.reducing. Returns
    the same optimizer."""
    compute, apply = optimizer.compute_gradients, optimizer.apply_gradients
    # By graph: the variables whose gradients compute_gradients has reduced. In a graph, several
    # operations may apply the same gradients. In eager code, one apply_gradients may.
    computed: Any = weakref.WeakKeyDictionary()

    def graphs() -> list[Any]:
        return [optimizer] if tf.executing_eagerly() else _graphs_around()

    def is_computed(variable: Any) -> bool:
        return any(variable.ref() in computed.get(graph, ()) for graph in graphs())

    @functools.wraps(compute)
    def compute_gradients(*args: Any, **kwargs: Any) -> list:
        pairs = compute(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        gradients = reduce([gradient for gradient, _ in pairs], _names.of(variables))
        computed.setdefault(graphs()[0], set()).update(variable.ref() for variable in variables)
        return list(zip(gradients, variables))

    @functools.wraps(apply)
    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        chosen = [not is_computed(v) and not _reductions.is_reduced(g, place) for g, v in pairs]
        if tf.executing_eagerly():
            computed.get(optimizer, set()).difference_update(v.ref() for v in variables)
        reduced = _reductions.reduce_those(reduce, chosen, gradients, _names.of(variables))
        return apply(list(zip(reduced, variables)), *args, **kwargs)

    optimizer.compute_gradients, optimizer.apply_gradients = compute_gradients, apply_gradients
    return optimizer


def _graphs_around() -> list[Any]:
    """Returns the graph that is being built, then the graphs around it."""
    graphs = [tf.compat.v1.get_default_graph()]
    while getattr(graphs[-1], "outer_graph", None) is not None:
        graphs.append(graphs[-1].outer_graph)
    return graphs


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the operation that sets the global variables of a graph of TensorFlow 1 to their
    values on the root. RuntimeError in eager code, which has no global variables."""
    if tf.executing_eagerly():
        raise RuntimeError("hccl: eager code has no global variables: use broadcast_variables")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def evaluated(result: Any) -> Any:
    """In a graph of TensorFlow 1, runs the result (an operation, a tensor or a variable) in Keras's
    session and returns its value. Returns None and results of eager code unchanged."""
    if result is None or tf.compat.v1.executing_eagerly_outside_functions():
        return result
    return tf.compat.v1.keras.backend.get_session().run(result)


def values_of(variables: Sequence[Any]) -> list[Any]:
    """Returns copies of the variables' values."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return [tf.identity(variable) for variable in variables]
    return tf.compat.v1.keras.backend.batch_get_value(list(variables))


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Sets the variables to the values. In a graph, makes the operations only at the first call."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        for variable, value in zip(variables, values):
            variable.assign(value)
    else:
        tf.compat.v1.keras.backend.batch_set_value(list(zip(variables, values)))


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Sets the global variables to their values on the root when a session begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        _horovod.check_devices(device=device)
        self._root = root_rank
        self._operation: Any = None

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        if self._operation is None or self._operation.graph is not graph:
            self._operation = broadcast_global_variables(self._root)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._operation)
