"""NPUEstimator: tf.estimator.Estimator with loops, and with the same weights on all ranks."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from npu_bridge import _ranks, _session
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_hook import NPUBroadcastGlobalVariablesHook, SetIterationsVarHook

_estimator = getattr(tf, "estimator", None)
_Estimator = getattr(_estimator, "Estimator", object)
NPUEstimatorSpec = getattr(_estimator, "EstimatorSpec", None)


class NPUEstimator(_Estimator):
    """Where there are several ranks, all begin with rank 0's weights, and rank 0 alone writes
    checkpoints. A session.run makes config.iterations_per_loop steps."""

    def __init__(
        self,
        model_fn: Any = None,
        model_dir: Optional[str] = None,
        config: Any = None,
        params: Any = None,
        job_start_file: str = "",
        warm_start_from: Any = None,
    ) -> None:
        if _Estimator is object:
            raise ImportError("NPUEstimator: this TensorFlow has no Estimator; use TensorFlow 2.15")
        if not isinstance(config, NPURunConfig):
            raise ValueError('"config" must be type `NPURunConfig`')
        self._npu_model_fn = model_fn
        super().__init__(
            model_fn=self._with_loops(model_fn, config),
            model_dir=model_dir,
            config=config,
            params=params,
            warm_start_from=warm_start_from,
        )

    @staticmethod
    def _with_loops(model_fn: Any, config: NPURunConfig) -> Any:
        parameters = _arguments(model_fn)

        def wrapped(features: Any, labels: Any, mode: Any, params: Any, config: Any) -> Any:
            given = {"labels": labels, "mode": mode, "params": params, "config": config}
            spec = model_fn(features, **{k: v for k, v in given.items() if k in parameters})
            if mode != tf.estimator.ModeKeys.TRAIN:
                return spec
            hooks, train_op = list(spec.training_hooks), spec.train_op
            if _ranks.size() > 1:
                hooks.append(NPUBroadcastGlobalVariablesHook(0))
            if steps > 1:
                hooks.append(SetIterationsVarHook(steps))
                train_op = tf.group(train_op, name=_session.ITERATION_OP)
            return spec._replace(train_op=train_op, training_hooks=hooks)

        steps = config.iterations_per_loop
        return wrapped


def _arguments(function: Any) -> Any:
    import inspect

    return inspect.signature(function).parameters
