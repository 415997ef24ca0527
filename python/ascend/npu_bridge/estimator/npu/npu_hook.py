"""Hooks for sessions and Estimators."""

from __future__ import annotations

import os
from typing import Any, Optional

import tensorflow as tf
from absl import logging
from hccl.tensorflow import _log, broadcast_variables
from tensorflow.python.ops import summary_ops_v2

from npu_bridge import _ranks
from npu_bridge.estimator.npu import util

_Hook = tf.compat.v1.train.SessionRunHook


class NPUBroadcastGlobalVariablesHook(_Hook):
    """Sets the trainable variables to their values on the root when the session begins."""

    def __init__(self, root_rank: Optional[int] = None, index: Optional[int] = None) -> None:
        self._root = 0 if root_rank is None else root_rank
        self._operation: Any = None

    def begin(self) -> None:
        made_here = self._operation is not None and (
            self._operation.graph is tf.compat.v1.get_default_graph()
        )
        if _ranks.size() <= 1 or made_here:
            return
        self._operation = broadcast_variables(tf.compat.v1.trainable_variables(), self._root)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._operation is not None:
            _log.log(logging.INFO, "NPUBroadcastGlobalVariablesHook run...")
            session.run(self._operation)


class SetIterationsVarHook(_Hook):
    """Sets the number of steps that each run of IterationOp makes. The train op must be
    tf.group(train_op, name="IterationOp")."""

    def __init__(self, iterations_per_loop: Optional[int] = None) -> None:
        self._steps = 1 if iterations_per_loop is None else iterations_per_loop
        util._check_iterations(self._steps)

    def begin(self) -> None:
        for name in util._VARIABLES:
            util.create_or_get_var(name)

    def after_create_session(self, session: Any, coord: Any) -> None:
        util.load_iterations(session, self._steps)
        print("load iterations_per_loop value -----------")
        print(self._steps - 1)


class NPUCheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """TensorFlow's CheckpointSaverHook."""


class NpuEmptyHook(_Hook):
    """Does nothing."""


class NPUOutputTensorHook(_Hook):
    """Calls output_fn after every output_every_n_steps runs and at the end. Its argument is a list
    with one dictionary for each run since the last call: the values of the tensors."""

    def __init__(
        self,
        tensors: Any,
        dependencies: Any = None,
        output_fn: Any = None,
        output_every_n_steps: int = 0,
    ) -> None:
        if tensors is not None and dependencies is not None:
            with tf.control_dependencies(tf.nest.flatten(dependencies)):
                tensors = {name: tf.identity(tensor) for name, tensor in tensors.items()}
        self._tensors, self._output_fn = tensors or {}, output_fn
        self._every, self._runs = output_every_n_steps or 1, 0
        self._outputs: list[Any] = []

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        self._fetches = {k: graph.as_graph_element(v) for k, v in self._tensors.items()}

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._outputs.append(run_values.results)
        self._runs += 1
        if self._runs % self._every == 0:
            self._hand_over()

    def end(self, session: Any) -> None:
        if self._outputs:
            self._hand_over()

    def _hand_over(self) -> None:
        outputs, self._outputs = self._outputs, []
        if self._output_fn is not None:
            self._output_fn(outputs)


class TellMeStepOrLossHook(_Hook):
    """Sets the environment variables STEP_NOW and LOSS_NOW to step and loss of the last run, and
    TOTAL_STEP and TARGET_LOSS to their targets. On a CPU nothing reads these variables."""

    def __init__(
        self, step: Any = None, total_step: Any = None, loss: Any = None, final_loss: Any = None
    ) -> None:
        if step is None and loss is None:
            raise ValueError("TellMeStepOrLossHook: step or loss must be given")
        self._fetches = {k: v for k, v in (("STEP_NOW", step), ("LOSS_NOW", loss)) if v is not None}
        goals = {"TOTAL_STEP": total_step, "TARGET_LOSS": final_loss}
        os.environ.update({name: str(goal) for name, goal in goals.items() if goal is not None})

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        os.environ.update({name: str(value) for name, value in run_values.results.items()})


class SummaryWritersHook(_Hook):
    """Opens and flushes the summary writers that host_call made in the graph."""

    def begin(self) -> None:
        self._open = list(summary_ops_v2.summary_writer_initializer_op())
        self._flush = [tf.raw_ops.FlushSummaryWriter(writer=op.inputs[0]) for op in self._open]

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._open)

    def end(self, session: Any) -> None:
        session.run(self._flush)
