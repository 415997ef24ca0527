"""npu_bridge.estimator.npu.util: loops, ranks."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from npu_bridge import _session

_VARIABLES = ("iterations_per_loop", "loop_cond", "one", "zero")


def get_ranksize() -> str:
    """The number of ranks, as the environment says it, as text."""
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
    """The variable of the loop in the graph at hand: int64, local, not trainable."""
    v1 = tf.compat.v1
    collection = f"npu_runconfig_{name}"
    found = v1.get_collection(collection)
    if len(found) > 1:
        raise RuntimeError(f"multiple {name} variables in the collection {collection}")
    if found:
        return found[0]
    with v1.variable_scope("npu_runconfig", reuse=v1.AUTO_REUSE):
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
    """Loads the loop's variables, as an NPU reads them, and lets IterationOp make so many steps."""
    values = dict(zip(_VARIABLES, (iterations_per_loop - 1, 0, 1, 0)))
    for name, value in values.items():
        create_or_get_var(name).load(value, session=session)
    _session.load_loop(session, iterations_per_loop)


def _iteration_op(train_op: Any) -> Any:
    return tf.group(train_op, name=_session.ITERATION_OP)


def set_iteration_per_loop(sess: Any, train_op: Any, iterations_per_loop: int = 1) -> Any:
    """The op to run instead of train_op: a run of it makes iterations_per_loop steps on the same
    feed, or on as many elements of the dataset."""
    _check_operation(train_op)
    _check_iterations(iterations_per_loop)
    if iterations_per_loop == 1:
        return train_op
    with sess.graph.as_default():
        for name in _VARIABLES:
            create_or_get_var(name)
        load_iterations(sess, iterations_per_loop)
        return _iteration_op(train_op)


class IterationPerLoop:
    """The same in two parts, for graphs that are finished in between (Supervisor)."""

    def create_iteration_per_loop_var(self, train_op: Any) -> Any:
        """Before the graph is finished: the op to run instead of train_op."""
        _check_operation(train_op)
        for name in _VARIABLES:
            create_or_get_var(name)
        return _iteration_op(train_op)

    def load_iteration_per_loop_var(self, sess: Any, iterations_per_loop: int = 1) -> None:
        """With the session."""
        _check_iterations(iterations_per_loop)
        with _session._base_of(sess).graph.as_default():
            load_iterations(sess, iterations_per_loop)
