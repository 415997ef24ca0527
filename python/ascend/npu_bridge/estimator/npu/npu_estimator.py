"""NPUEstimator: tf.estimator.Estimator with loops, and with the same weights on all ranks."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Optional

import tensorflow as tf

from npu_bridge import _loops, _ranks, _session
from npu_bridge.estimator.npu import _model_dir
from npu_bridge.estimator.npu.npu_config import NPURunConfig, need_estimator
from npu_bridge.estimator.npu.npu_hook import (
    NPUBroadcastGlobalVariablesHook,
    SetIterationsVarHook,
    SummaryWritersHook,
)

_estimator = getattr(tf, "estimator", None)
_Estimator = getattr(_estimator, "Estimator", object)
_Spec = getattr(_estimator, "EstimatorSpec", object)
if _estimator is not None:
    _model_dir.give_places(_Estimator)


class NPUEstimatorSpec(_Spec):
    """tf.estimator.EstimatorSpec with host_call: a pair of a function and its tensors, which are a
    list or a dictionary of arguments. The function returns one or several ops, which run in each
    step of training or evaluation."""

    def __new__(cls, *args: Any, host_call: Any = None, **kwargs: Any) -> Any:
        need_estimator("NPUEstimatorSpec")
        if host_call is not None:
            _check_host_call(host_call)
        spec = super().__new__(cls, *args, **kwargs)
        spec.host_call = host_call
        return spec


def _check_host_call(host_call: Any) -> None:
    if not isinstance(host_call, (tuple, list)) or len(host_call) != 2:
        raise ValueError("host_call: expected a function and its tensors, a tuple of two")
    function, tensors = host_call
    if not callable(function):
        raise TypeError("host_call[0]: expected a function")
    if not isinstance(tensors, (tuple, list, dict)):
        raise ValueError("host_call[1]: expected a list of tensors, or a dictionary")


class NPUEstimator(_Estimator):
    """tf.estimator.Estimator in which all ranks begin with rank 0's weights. If ranks share a
    model_dir, only rank 0 writes to it. A session.run makes config.iterations_per_loop steps."""

    def __init__(
        self,
        model_fn: Any = None,
        model_dir: Optional[str] = None,
        config: Any = None,
        params: Any = None,
        job_start_file: str = "",
        warm_start_from: Any = None,
    ) -> None:
        need_estimator("NPUEstimator")
        if not isinstance(config, NPURunConfig):
            raise ValueError('"config" must be type `NPURunConfig`')
        _ranks.size()  # joins, because scripts may call hccl.manage.api after this
        self._npu_model_fn = model_fn
        super().__init__(
            model_fn=self._augmented(model_fn, config.iterations_per_loop),
            model_dir=model_dir,
            config=config,
            params=params,
            warm_start_from=warm_start_from,
        )

    def _augmented(self, model_fn: Callable, steps: int) -> Callable:
        parameters = inspect.signature(model_fn).parameters

        def wrapped(features: Any, labels: Any, mode: Any, params: Any, config: Any) -> Any:
            given = {"labels": labels, "mode": mode, "params": params, "config": config}
            spec = model_fn(features, **{k: v for k, v in given.items() if k in parameters})
            spec = _with_host_call(spec)
            return self._for_training(spec, steps) if mode == tf.estimator.ModeKeys.TRAIN else spec

        return wrapped

    def _for_training(self, spec: Any, steps: int) -> Any:
        hooks, train_op = list(spec.training_hooks), spec.train_op
        if _ranks.size() > 1:
            self._config, self._model_dir, last = _model_dir.for_training(self._config)
            hooks = [NPUBroadcastGlobalVariablesHook(0), *hooks, *last]
        if steps > 1:
            hooks.append(SetIterationsVarHook(steps))
            with _loops.logged(tf.compat.v1.get_default_graph()):
                train_op = tf.group(train_op, name=_session.ITERATION_OP)
        else:
            _session.say_one(train_op.name)
        return spec._replace(train_op=train_op, training_hooks=hooks)


def _with_host_call(spec: Any) -> Any:
    """Returns a spec whose train op, or whose loss in evaluation, runs the ops of host_call."""
    if getattr(spec, "host_call", None) is None or spec.mode == tf.estimator.ModeKeys.PREDICT:
        return spec
    function, tensors = spec.host_call
    training = spec.mode == tf.estimator.ModeKeys.TRAIN
    with tf.control_dependencies([spec.train_op if training else spec.loss]):
        tensors = tf.nest.map_structure(tf.identity, tensors)
    made = function(**tensors) if isinstance(tensors, dict) else function(*tensors)
    ops = [op for op in tf.nest.flatten(made) if op is not None]
    if training:
        hooks = [*spec.training_hooks, SummaryWritersHook()]
        return spec._replace(train_op=tf.group(spec.train_op, *ops), training_hooks=hooks)
    with tf.control_dependencies(ops):
        loss = tf.identity(spec.loss)
    return spec._replace(loss=loss, evaluation_hooks=[*spec.evaluation_hooks, SummaryWritersHook()])
