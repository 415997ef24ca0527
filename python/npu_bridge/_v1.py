"""TensorFlow 1 within TensorFlow 2."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow
from tensorflow.python.util import deprecation

from npu_bridge import _contrib, _session


def enable() -> Any:
    """Switches TensorFlow 1's behaviour on and copies its public names onto the module tensorflow,
    so that it does not matter which name a script has imported, and when. Returns the module."""
    v1 = tensorflow.compat.v1
    with deprecation.silence():  # of what it calls itself
        v1.disable_v2_behavior()
    for name in dir(v1):
        if name.startswith("_"):
            continue
        try:
            value = getattr(v1, name)
        except (AttributeError, ImportError):  # Estimator, where this TensorFlow has none
            continue
        setattr(tensorflow, name, value)
    _keras_of_sessions(tensorflow)
    _contrib.install(tensorflow)
    _session.install(tensorflow)
    return tensorflow


def _keras_of_sessions(tensorflow: Any) -> None:
    """`from tensorflow.keras import ...` would load TensorFlow 2's Keras, whose optimizers work in no
    session, and put it onto the module tensorflow. Keras 3 has no other."""
    keras = tensorflow.compat.v1.keras
    if not hasattr(keras.backend, "set_session"):
        return
    for name in [name for name in sys.modules if name.startswith("tensorflow.keras.")]:
        del sys.modules[name]
    sys.modules["tensorflow.keras"] = keras
