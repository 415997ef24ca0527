"""TensorFlow 1 within TensorFlow 2."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow
from tensorflow.python.util import deprecation

from npu_bridge import _contrib, _session


def enable() -> Any:
    """Enables TensorFlow 1's behaviour and copies its public names to the module tensorflow. So a
    script may import either module, in any order. Returns the module."""
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
    """Sets tensorflow.keras to the Keras of TensorFlow 1. Otherwise `from tensorflow.keras import
    ...` would load TensorFlow 2's Keras, whose optimizers do not work in sessions. With Keras 3
    there is no Keras of TensorFlow 1."""
    keras = tensorflow.compat.v1.keras
    if not hasattr(keras.backend, "set_session"):
        return
    for name in [name for name in sys.modules if name.startswith("tensorflow.keras.")]:
        del sys.modules[name]
    sys.modules["tensorflow.keras"] = keras
