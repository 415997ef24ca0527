"""Optimizers, variables and hooks of TensorFlow 1's graphs and sessions."""

from __future__ import annotations

import functools
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
    computed: set[Any] = set()  # variables whose gradients are reduced but not yet applied

    @functools.wraps(compute)
    def compute_gradients(*args: Any, **kwargs: Any) -> list:
        pairs = compute(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        gradients = reduce([gradient for gradient, _ in pairs], _names.of(variables))
        computed.update(variable.ref() for variable in variables)
        _mark(gradients, place)
        return list(zip(gradients, variables))

    @functools.wraps(apply)
    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        others: set = set()
        chosen = [
            v.ref() not in computed
            and not _reductions.is_reduced(g, place)
            and not _comes_from_marked(g, place, others)
            for g, v in pairs
        ]
        computed.difference_update(variable.ref() for variable in variables)
        reduced = _reductions.reduce_those(reduce, chosen, gradients, _names.of(variables))
        return apply(list(zip(reduced, variables)), *args, **kwargs)

    optimizer.compute_gradients, optimizer.apply_gradients = compute_gradients, apply_gradients
    return optimizer


# In a graph, several operations may apply the same gradients, for example with and without clipping
# in the branches of a tf.cond. So a graph keeps the names of the tensors that are reduced.


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _mark(gradients: Sequence[Any], place: Any) -> None:
    for tensor in map(_values, gradients):
        if tf.is_symbolic_tensor(tensor):
            if not hasattr(tensor.graph, "_hccl_reduced"):
                tensor.graph._hccl_reduced = {}
            tensor.graph._hccl_reduced.setdefault(place, set()).add(tensor.name)


def _comes_from_marked(gradient: Any, place: Any, others: set) -> bool:
    """Returns whether a tensor of a graph is computed from a tensor that _mark() has marked.
    others: tensors that are not; this call adds to them."""
    tensor = _values(gradient)
    graph = getattr(tensor, "graph", None) if tf.is_symbolic_tensor(tensor) else None
    while graph is not None and not hasattr(graph, "_hccl_reduced"):
        graph = getattr(graph, "outer_graph", None)
    if graph is None:
        return False
    todo, seen = [tensor], set()
    while todo:
        tensor = todo.pop()
        if not tf.is_symbolic_tensor(tensor):  # a captured eager tensor
            continue
        key = tensor.graph, tensor.name
        if key in seen or key in others:
            continue
        seen.add(key)
        if tensor.name in getattr(tensor.graph, "_hccl_reduced", {}).get(place, ()):
            return True
        todo += tensor.op.inputs
        if tensor.op.type == "Placeholder":  # in a function, it may stand for a tensor outside
            captures = getattr(tensor.graph, "captures", ())
            todo += [outside for outside, own in captures if own.name == tensor.name]
    others |= seen
    return False


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
