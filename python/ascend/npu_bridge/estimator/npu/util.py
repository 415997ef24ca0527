"""npu_bridge.estimator.npu.util: loops, ranks."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from hccl.tensorflow import _log

from npu_bridge import _loops, _session

_VARIABLES = ("iterations_per_loop", "loop_cond", "one", "zero")


def get_ranksize() -> str:
    """Returns, as text, the number of ranks that RANK_SIZE or CM_WORKER_SIZE sets, or "1"."""
    if "RANK_SIZE" in os.environ and "CM_WORKER_SIZE" in os.environ:
        raise ValueError("RANK_SIZE and CM_WORKER_SIZE cannot be configured at the same time")
    return os.environ.get("RANK_SIZE") or os.environ.get("CM_WORKER_SIZE") or "1"


def _check_iterations(iterations_per_loop: Any) -> None:
    if not isinstance(iterations_per_loop, int):
        raise TypeError("iterations_per_loop must be an integer")
    if iterations_per_loop <= 0:
        raise ValueError("iterations_per_loop must be a positive integer")


def _check_operation(train_op: Any) -> None:
    if not isinstance(train_op, tf.Operation):
        raise ValueError(
            f"train_op: expected a tf.Operation, not {type(train_op).__name__}; "
            "use tf.group(train_op)"
        )


def create_or_get_var(name: str) -> Any:
    """Returns the loop variable `name` of the current graph: int64, local, not trainable."""
    v1 = tf.compat.v1
    collection = f"npu_runconfig_{name}"
    found = v1.get_collection(collection)
    if len(found) > 1:
        raise RuntimeError(f"multiple {name} variables in the collection {collection}")
    if found:
        return found[0]
    scope = v1.variable_scope("npu_runconfig", reuse=v1.AUTO_REUSE)
    with _loops.logged(v1.get_default_graph()), scope:
        return v1.get_variable(
            name,
            shape=[],
            dtype=tf.int64,
            initializer=v1.zeros_initializer(),
            trainable=False,
            use_resource=True,
            collections=[collection, v1.GraphKeys.LOCAL_VARIABLES],
        )


def load_iterations(session: Any, iterations_per_loop: int) -> None:
    """Loads the loop variables that an NPU reads, and sets the number of steps of IterationOp."""
    values = dict(zip(_VARIABLES, (iterations_per_loop - 1, 0, 1, 0)))
    for name, value in values.items():
        create_or_get_var(name).load(value, session=session)
    _session.load_loop(session, iterations_per_loop)


def _iteration_op(train_op: Any) -> Any:
    with _loops.logged(train_op.graph):
        operation = tf.no_op(name=_session.ITERATION_OP)
    # tf.group would change an attribute of train_op, for which TensorFlow warns after a run.
    operation._add_control_input(train_op)
    return operation


def set_iteration_per_loop(sess: Any, train_op: Any, iterations_per_loop: int = 1) -> Any:
    """Returns the op to run instead of train_op. A run of this op makes iterations_per_loop steps,
    on the same feed or on as many elements of the dataset."""
    _check_operation(train_op)
    _check_iterations(iterations_per_loop)
    if iterations_per_loop == 1:
        _session.say_one(train_op.name)
        return train_op
    with sess.graph.as_default():
        load_iterations(sess, iterations_per_loop)
        return _iteration_op(train_op)


class IterationPerLoop:
    """set_iteration_per_loop in two calls, for programs that finalize the graph between the calls
    (Supervisor)."""

    def create_iteration_per_loop_var(self, train_op: Any) -> Any:
        """Returns the op to run instead of train_op. Call it before the graph is finalized."""
        _check_operation(train_op)
        for name in _VARIABLES:
            create_or_get_var(name)
        return _iteration_op(train_op)

    def load_iteration_per_loop_var(self, sess: Any, iterations_per_loop: int = 1) -> None:
        """Sets the loop variables in the session."""
        _check_iterations(iterations_per_loop)
        with _session._base_of(sess).graph.as_default():
            load_iterations(sess, iterations_per_loop)


# ---- Names that scripts use. The first use of those without a meaning on a CPU is logged. ----

_values: dict = {}


def global_dict_init() -> None:
    """Removes all values of set_value."""
    _values.clear()


def set_value(key: Any, value: Any) -> None:
    _values[key] = value


def get_value(key: Any, def_value: Any = None) -> Any:
    return _values.get(key, def_value)


def variable_initializer_in_host(var_list: Any) -> Any:
    """Returns the op that initializes the variables."""
    return tf.compat.v1.variables_initializer(var_list, name="var_in_host")


def npu_compile(sess: Any, *fetches: Any) -> None:
    """Runs the fetches once, to prepare later runs."""
    sess.run(fetches)


def keep_tensors_dtypes(graph: Any, input_tensors: Any) -> None:
    """Only checks the arguments. ValueError: graph is not a tf.Graph, or input_tensors is not a
    list."""
    if not isinstance(graph, tf.Graph):
        raise ValueError("graph param must be ops.Graph class.")
    if not isinstance(input_tensors, (tuple, list)):
        raise ValueError("input_tensors must be list or tuple.")
    for name in input_tensors:
        graph.get_tensor_by_name(name)
    _log.without_effect("util.keep_tensors_dtypes")


def set_graph_exec_config(
    fetch: Any,
    dynamic_input: bool = False,
    dynamic_graph_execute_mode: str = "dynamic_execute",
    dynamic_inputs_shape_range: Any = None,
    is_train_graph: bool = False,
    experimental_config: Any = None,
) -> Any:
    """Returns the fetch, or the tensor with this name. ValueError: the mode is unknown, or the
    fetch is not an op, tensor, name or list."""
    if dynamic_graph_execute_mode not in ("lazy_recompile", "dynamic_execute"):
        raise ValueError("dynamic_graph_execute_mode should be lazy_recompile or dynamic_execute")
    if isinstance(fetch, str):
        return tf.compat.v1.get_default_graph().get_tensor_by_name(fetch)
    if not isinstance(fetch, (tf.Operation, tf.Tensor, tuple, list)):
        raise ValueError("fetch is invalid, should be op, tensor, list, tuple or tensor name.")
    _log.without_effect("util.set_graph_exec_config")
    return fetch


def set_op_max_shape(tensor: Any, max_shape: Any) -> None:
    _log.without_effect("util.set_op_max_shape")


def set_op_tensor_max_range(tensor: Any, max_shape: Any) -> None:
    _log.without_effect("util.set_op_tensor_max_range")


def set_op_input_tensor_multi_dims(tensor: Any, input_shape: Any, input_dims: Any) -> None:
    _log.without_effect("util.set_op_input_tensor_multi_dims")


def set_op_tensor_max_size(tensor: Any, max_size: int) -> None:
    _log.without_effect("util.set_op_tensor_max_size")


def fair_division(inputs: Any, number: int) -> Any:
    """Sets each item's root_rank_id, in ascending order, to one of `number` ranks, so that the sums
    of the items' sizes are about equal on all ranks. Returns the items. ValueError: there are fewer
    items than ranks."""
    if number > len(inputs) or number < 0:
        raise ValueError(
            "'number' is greater than the number of inputs or 'number' is less than 0."
        )
    left, rank, taken = sum(item.size for item in inputs), 0, 0
    for i, item in enumerate(inputs):
        share = left / (number - rank)
        others = number - rank - 1
        full = taken > 0 and taken + item.size / 2 > share
        if others > 0 and taken > 0 and (full or len(inputs) - i <= others):
            left, rank, taken = left - taken, rank + 1, 0
        item.root_rank_id = rank
        taken += item.size
    return inputs
