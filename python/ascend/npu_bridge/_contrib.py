"""The parts of tf.contrib that scripts use most. TensorFlow 2 has no tf.contrib."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.util
import sys
import types
from typing import Any, Callable, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from npu_bridge import _contrib_parts


def _gone(name: str) -> str:
    last = name.rsplit(".", 1)[-1]
    return (
        f"{name}: tf.contrib does not exist since TensorFlow 2, and hccl has "
        f"not this part of it; look for {last} in tf.compat.v1, tf_slim or tensorflow_addons"
    )


class _Part(types.ModuleType):
    """A module of tf.contrib. A name that the module lacks is taken from `elsewhere`, or raises an
    ImportError that names a replacement."""

    def __init__(self, name: str, elsewhere: Callable[[], Any] = lambda: None) -> None:
        super().__init__(name)
        self._elsewhere = elsewhere

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._elsewhere(), name, None)
        if found is not None:
            return found
        raise ImportError(_gone(f"{self.__name__}.{name}"))


class _Inner(_Part):
    """A module within a part, such as tf.contrib.tpu.python.tpu. It has the names of the part, and
    contains modules of any name, because such names are only those of the upstream project's
    files."""

    def __init__(self, name: str) -> None:
        part = ".".join(name.split(".")[:3])
        super().__init__(name, lambda: sys.modules[part])
        self.__path__: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(_gone(self.__name__))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except ImportError:
            if name.startswith("_") or not name.islower():
                raise
            return importlib.import_module(f"{self.__name__}.{name}")


class _Contrib(_Part):
    def __getattr__(self, name: str) -> Any:
        if name == "slim":
            module = _slim()
            setattr(self, name, module)
            return module
        return super().__getattr__(name)


def _slim() -> Any:
    # TensorFlow 2.15 looks for this module in tf_keras. Without tf_keras, Keras 2 has the module.
    name = "legacy_tf_layers.normalization"
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec("tf_keras") is None:
            sys.modules[f"tf_keras.{name}"] = importlib.import_module(f"keras.src.{name}")
    try:
        return importlib.import_module("tf_slim")
    except ModuleNotFoundError:
        raise ImportError("tf.contrib.slim, layers and framework: install the package tf_slim") from None


# Packages of tf.contrib that have another name in tf_slim.
_OF_SLIM = {"tensorflow.contrib.slim": "tf_slim", "tensorflow.contrib.layers.python": "tf_slim"}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds tf_slim's modules for `import tensorflow.contrib.x`, or raises an error that names a
    replacement."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == "tensorflow.examples":
            raise ModuleNotFoundError(
                f"{name} does not exist since TensorFlow 2; tf.keras.datasets has MNIST", name=name
            )
        if not name.startswith("tensorflow.contrib."):
            return None
        if _in_slim(name) or _in_part(name):
            return importlib.util.spec_from_loader(name, self, is_package=True)
        raise ModuleNotFoundError(_gone(name), name=name)

    def create_module(self, spec: Any) -> Any:
        if _in_part(spec.name):
            return _Inner(spec.name)
        _slim()
        return importlib.import_module(_in_slim(spec.name))

    def exec_module(self, module: Any) -> None:
        pass


def _in_slim(name: str) -> str:
    for whole, of_slim in _OF_SLIM.items():
        if name == whole or name.startswith(f"{whole}."):
            return of_slim + name[len(whole) :]
    return ""


def _in_part(name: str) -> bool:
    return name.split(".")[2] in _contrib_parts.own()


# For each part of tf.contrib, the module that replaces it. _modules() has the names that the
# replacement lacks.
_ELSEWHERE: dict[str, Callable[[], Any]] = {
    "layers": _slim,
    "framework": _slim,
    "rnn": lambda: tf.compat.v1.nn.rnn_cell,
    "data": lambda: tf.compat.v1.data.experimental,
    "summary": lambda: summary_ops_v2,
    "distribute": lambda: tf.compat.v1.distribute,
    "cluster_resolver": lambda: tf.compat.v1.distribute.cluster_resolver,
}


def _xavier_initializer(uniform: bool = True, seed: Any = None, dtype: Any = tf.float32) -> Any:
    make = tf.compat.v1.glorot_uniform_initializer if uniform else tf.compat.v1.glorot_normal_initializer
    return make(seed=seed, dtype=dtype)


def _variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: Any = None,
    dtype: Any = tf.float32,
) -> Any:
    return tf.compat.v1.variance_scaling_initializer(
        scale=factor,
        mode=mode.lower(),
        distribution="uniform" if uniform else "truncated_normal",
        seed=seed,
        dtype=dtype,
    )


def _l2_regularizer(scale: float, scope: Any = None) -> Any:
    return lambda weights: tf.multiply(scale, tf.nn.l2_loss(weights))


def _l1_regularizer(scale: float, scope: Any = None) -> Any:
    return lambda weights: tf.multiply(scale, tf.reduce_sum(tf.abs(weights)))


class _DistributeConfig(NamedTuple):
    """The class of the objects that tf.estimator.RunConfig accepts as experimental_distribute."""

    train_distribute: Any = None
    eval_distribute: Any = None
    remote_cluster: Any = None


def _modules() -> dict[str, dict[str, Any]]:
    from npu_bridge.estimator.npu import npu_loss_scale_manager as managers
    from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer

    return {
        "layers": {
            "xavier_initializer": _xavier_initializer,
            "xavier_initializer_conv2d": _xavier_initializer,
            "variance_scaling_initializer": _variance_scaling_initializer,
            "l1_regularizer": _l1_regularizer,
            "l2_regularizer": _l2_regularizer,
            "flatten": lambda inputs, **_: tf.compat.v1.reshape(
                inputs, [-1, inputs.shape[1:].num_elements()]
            ),
        },
        "mixed_precision": {
            "FixedLossScaleManager": managers.FixedLossScaleManager,
            "ExponentialUpdateLossScaleManager": managers.ExponentialUpdateLossScaleManager,
            "LossScaleOptimizer": NPULossScaleOptimizer,
        },
        "framework": {
            "get_or_create_global_step": tf.compat.v1.train.get_or_create_global_step,
            "nest": tf.nest,
        },
        "summary": {"all_summary_ops": summary_ops_v2.all_v2_summary_ops},
        "distribute": {"DistributeConfig": _DistributeConfig},
        "rnn": {},
        "data": {},
        "cluster_resolver": {},
        **_contrib_parts.own(),
    }


def install(tensorflow: Any) -> None:
    if hasattr(tensorflow, "contrib"):  # a real tf.contrib
        return
    sys.meta_path.insert(0, _Finder())
    contrib = _Contrib("tensorflow.contrib")
    contrib.__path__ = []
    sys.modules[contrib.__name__] = tensorflow.contrib = contrib
    for name, contents in _modules().items():
        elsewhere = _ELSEWHERE.get(name, functools.partial(_contrib_parts.Part, name, _slim))
        part = _Part(f"tensorflow.contrib.{name}", elsewhere)
        part.__path__ = []
        vars(part).update(contents)
        sys.modules[part.__name__] = part
        setattr(contrib, name, part)
