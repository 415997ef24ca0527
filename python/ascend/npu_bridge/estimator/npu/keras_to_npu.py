"""Makes an NPUEstimator from a Keras model, so that one session.run can make many steps."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from npu_bridge import _ranks
from npu_bridge.estimator.npu.npu_config import need_estimator
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator


def model_to_npu_estimator(
    keras_model: Any = None,
    keras_model_path: Optional[str] = None,
    custom_objects: Optional[dict] = None,
    model_dir: Optional[str] = None,
    checkpoint_format: str = "saver",
    config: Any = None,
    job_start_file: str = "",
) -> NPUEstimator:
    """Makes an NPUEstimator from a compiled model or its file. ValueError: config is not an
    NPURunConfig."""
    need_estimator("model_to_npu_estimator")
    # model_to_estimator() writes the model's weights, with which training begins, into this
    # directory. On rank 0 they must be rank 0's.
    first = model_dir
    if model_dir is not None and _ranks.rank() != 0:
        first = f"{model_dir}/rank_{_ranks.rank()}"
    # model_to_estimator uses a name of TensorFlow 2, but tf has TensorFlow 1's names now.
    if not hasattr(tf.keras.optimizers, "experimental"):
        tf.keras.optimizers.experimental = tf.compat.v2.keras.optimizers.experimental
    made = tf.keras.estimator.model_to_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=first,
        config=tf.estimator.RunConfig(model_dir=first),
        checkpoint_format=checkpoint_format,
    )
    return NPUEstimator(
        model_fn=made._model_fn,
        model_dir=model_dir,
        config=config,
        job_start_file=job_start_file,
        warm_start_from=made._warm_start_settings,
    )
