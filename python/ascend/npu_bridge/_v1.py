"""TensorFlow 1 within TensorFlow 2."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow
from tensorflow.python.util import deprecation

from npu_bridge import _contrib, _session


def enable() -> Any:
    """Enables TensorFlow 1's behaviour and copies its public names to the module tensorflow. So a
    script may import tensorflow and npu_bridge in any order. Returns the module tensorflow."""
    v1 = tensorflow.compat.v1
    with deprecation.silence():  # hides warnings about TensorFlow's own calls
        v1.disable_v2_behavior()
    for name in dir(v1):
        if name.startswith("_"):
            continue
        try:
            value = getattr(v1, name)
        except (AttributeError, ImportError):  # this TensorFlow has no Estimator
            continue
        setattr(tensorflow, name, value)
    _keras_of_sessions(tensorflow)
    _contrib.install(tensorflow)
    _session.install(tensorflow)
    return tensorflow


def _keras_of_sessions(tensorflow: Any) -> None:
    """Makes tensorflow.keras the Keras of TensorFlow 1, because the optimizers of TensorFlow 2's
    Keras do not work in sessions. Does nothing with Keras 3, which has no part for TensorFlow 1."""
    keras = tensorflow.compat.v1.keras
    if not hasattr(keras.backend, "set_session"):
        return
    for name in [name for name in sys.modules if name.startswith("tensorflow.keras.")]:
        del sys.modules[name]
    sys.modules["tensorflow.keras"] = keras
