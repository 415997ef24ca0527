"""Hooks for sessions and Estimators."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf
from absl import logging
from hccl.tensorflow import _ops

from npu_bridge import _ranks
from npu_bridge.estimator.npu import util

_Hook = tf.compat.v1.train.SessionRunHook


class NPUBroadcastGlobalVariablesHook(_Hook):
    """Gives the trainable variables the values of the root when the session begins."""

    def __init__(self, root_rank: Optional[int] = None, index: Optional[int] = None) -> None:
        self._root = 0 if root_rank is None else root_rank
        self._operation: Any = None

    def begin(self) -> None:
        if _ranks.size() <= 1 or self._operation is not None:
            return
        variables = tf.compat.v1.trainable_variables()
        values = _ops.broadcast([v.read_value() for v in variables], self._root)
        self._operation = tf.group(*(v.assign(value) for v, value in zip(variables, values)))

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._operation is not None:
            logging.info("NPUBroadcastGlobalVariablesHook run...")
            session.run(self._operation)


class SetIterationsVarHook(_Hook):
    """IterationOp makes iterations_per_loop steps a run; the train op is
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
    """TensorFlow's."""


class NpuEmptyHook(_Hook):
    """Does nothing."""


class NPUOutputTensorHook(tf.compat.v1.train.LoggingTensorHook):
    """Hands the tensors of a dictionary to output_fn every so many steps."""

    def __init__(
        self,
        tensors: Any,
        dependencies: Any = None,
        output_fn: Any = None,
        output_every_n_steps: int = 0,
    ) -> None:
        super().__init__(tensors, every_n_iter=output_every_n_steps or 1)
        self._output_fn = output_fn

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._should_trigger and self._output_fn is not None:
            self._output_fn([run_values.results])
        self._iter_count += 1


class TellMeStepOrLossHook(_Hook):
    """Accepted: nothing on a CPU asks for the step."""
