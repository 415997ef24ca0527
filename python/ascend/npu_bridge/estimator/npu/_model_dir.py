"""Handles a model_dir that several ranks share. Only rank 0 writes to it, because the files of two
ranks would have the same names."""

from __future__ import annotations

import functools
import os
import pathlib
import secrets
from typing import Any

import tensorflow as tf
from hccl.tensorflow import _ops

from npu_bridge import _ranks
from npu_bridge.estimator.npu.npu_optimizer import SHARDED

_Hook = tf.compat.v1.train.SessionRunHook


class _NoSaver(tf.compat.v1.train.CheckpointSaverHook):
    """Replaces the hook that writes checkpoints, and does nothing."""

    def __init__(self) -> None:
        self._listeners: list[Any] = []

    begin, end, after_create_session = _Hook.begin, _Hook.end, _Hook.after_create_session
    before_run, after_run = _Hook.before_run, _Hook.after_run


class _EndTogether(_Hook):
    """Makes all ranks end together, after rank 0 has written the last checkpoint."""

    def begin(self) -> None:
        self._operation = _ops.all_reduce(tf.constant(1), "sum").op

    def end(self, session: Any) -> None:
        session.run(self._operation)


def for_training(config: Any) -> tuple[Any, str, list[Any]]:
    """Returns this rank's settings for training: a RunConfig, the directory of this rank's
    checkpoints, and hooks that must run after all others. All ranks must call it. If the state of
    the optimizer is divided over the ranks, each rank writes its own checkpoints, below rank 0's
    directory."""
    directory = config.model_dir
    if _is_rank_0s(pathlib.Path(directory)) and _ranks.rank() != 0:
        quiet = config.replace(save_summary_steps=0, log_step_count_steps=None)
        if tf.compat.v1.get_collection(SHARDED):
            return quiet, f"{directory}/rank_{_ranks.rank()}", [_EndTogether()]
        return quiet, directory, [_NoSaver(), _EndTogether()]
    return config, directory, [_EndTogether()]


def give_places(estimator: Any) -> None:
    """Makes tf.estimator.Estimator and the classes derived from it write to a directory below
    model_dir on all ranks but 0, if npu_config_proto made the config of their sessions. Such
    estimators might never call a collective, so each rank decides alone. NPUEstimator calls
    for_training() instead."""
    begin = estimator.__init__

    @functools.wraps(begin)
    def begin_with_place(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        rank = int(os.environ.get("RANK_ID", 0))
        optimizers = self._session_config.graph_options.rewrite_options.custom_optimizers
        ours = any(each.name == "NpuOptimizer" for each in optimizers)
        if rank == 0 or not ours or hasattr(self, "_npu_model_fn"):
            return
        self._config = self._config.replace(model_dir=f"{self._model_dir}/rank_{rank}")
        self._model_dir = self._config.model_dir

    estimator.__init__ = begin_with_place


def _is_rank_0s(directory: pathlib.Path) -> bool:
    """Returns whether this rank sees a file that rank 0 makes in the directory. All ranks must call
    it."""
    first = _ranks.rank() == 0
    number = secrets.randbits(62) if first else 0
    marker = directory / f".hccl-{number}"
    if first:
        directory.mkdir(parents=True, exist_ok=True)
        marker.touch()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        told = session.run(_ops.broadcast([tf.constant(number, tf.int64)], 0))[0]
        found = (directory / f".hccl-{told}").exists()
        session.run(_ops.all_reduce(tf.constant(1), "sum"))  # all ranks have looked
    marker.unlink(missing_ok=True)
    return found
