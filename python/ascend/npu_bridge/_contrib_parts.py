"""Five parts of tf.contrib: tpu, training, quantize, learn, seq2seq. Of their names, TensorFlow
still has some, and this module defines some. The others are gone: using them raises an error that
names a replacement."""

from __future__ import annotations

import functools
import importlib
import json
import re
import types
from typing import Any, Callable, Optional

import tensorflow as tf


class _Gone(type):
    """The metaclass of classes that TensorFlow has removed. Scripts can import such classes and
    derive from them. Making an object or reading an attribute raises NotImplementedError."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(cls.why)  # type: ignore[attr-defined]

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(cls.why)  # type: ignore[attr-defined]


# The modules of tf.compat.v1 that have a part's names.
_PLACES = {"tpu": ("estimator.tpu", "tpu", "tpu.experimental"), "training": ("train",)}
_ESTIMATOR = "the same name of tf.estimator, which TensorFlow 2.15 is the last to have"
_DATA = "tf.data, such as tf.data.experimental.bucket_by_sequence_length"
_DECODERS = "tf.nn.raw_rnn, or tensorflow_addons.seq2seq"
# Each line: a part, its replacement, its names.
_TABLE = f"""
tpu: {_ESTIMATOR}: InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec
tpu: tf.distribute.TPUStrategy: TPUDistributionStrategy keras_to_tpu_model
tpu: tf.tpu.experimental.embedding: AdagradParameters AdamParameters
tpu: tf.tpu.experimental.embedding: StochasticGradientDescentParameters
training: {_DATA}: NextQueuedSequenceBatch SequenceQueueingStateSaver batch_sequences_with_states
training: {_DATA}: bucket bucket_by_sequence_length rejection_sample stratified_sample
training: tf.train.replica_device_setter alone: GreedyLoadBalancingStrategy byte_size_load_fn
quantize: tensorflow_model_optimization: create_training_graph experimental_create_training_graph
quantize: tensorflow_model_optimization: create_eval_graph experimental_create_eval_graph
learn: {_ESTIMATOR}: Estimator DNNClassifier DNNRegressor LinearClassifier LinearRegressor
learn: {_ESTIMATOR}: DNNLinearCombinedClassifier DNNLinearCombinedRegressor RunConfig
learn: tf.estimator.train_and_evaluate: Experiment learn_runner
learn: tf.keras.layers.TextVectorization: preprocessing
learn: tf.metrics: MetricSpec
learn: tf.keras.datasets: datasets
learn: tf.data: io
seq2seq: {_DECODERS}: Decoder BasicDecoder BasicDecoderOutput dynamic_decode tile_batch
seq2seq: {_DECODERS}: BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
seq2seq: {_DECODERS}: Helper CustomHelper TrainingHelper InferenceHelper SampleEmbeddingHelper
seq2seq: {_DECODERS}: GreedyEmbeddingHelper ScheduledEmbeddingTrainingHelper hardmax
seq2seq: {_DECODERS}: ScheduledOutputTrainingHelper AttentionMechanism AttentionWrapper
seq2seq: {_DECODERS}: AttentionWrapperState BahdanauAttention BahdanauMonotonicAttention
seq2seq: {_DECODERS}: LuongAttention LuongMonotonicAttention FinalBeamSearchDecoderOutput
"""
_INSTEAD = {
    (part, name): use
    for part, use, names in (line.split(": ") for line in _TABLE.strip().splitlines())
    for name in names.split()
}


class Part:
    """Finds those names of a part that this package does not define. AttributeError: the part has
    no such name."""

    def __init__(self, name: str, slim: Callable[[], Any]) -> None:
        self._name, self._slim = name, slim

    def __getattr__(self, name: str) -> Any:
        for place in _PLACES.get(self._name, ()):
            if (found := _attribute(f"{place}.{name}")) is not None:
                return found
        if (self._name, name) in _INSTEAD:
            return _gone(self._name, name)
        if self._name != "training":
            raise AttributeError(name)
        self._slim()
        names = ("tf_slim.training.training", "tf_slim.training.evaluation")
        modules = [importlib.import_module(each) for each in names]
        return getattr(modules[0] if hasattr(modules[0], name) else modules[1], name)


@functools.lru_cache(maxsize=None)
def _gone(part: str, name: str) -> type:
    why = f"tf.contrib.{part}.{name}: TensorFlow 2 does not have it; use {_INSTEAD[part, name]}"
    return _Gone(name, (), {"why": why})


def _attribute(path: str) -> Any:
    """Returns an object of tf.compat.v1, or None if this TensorFlow lacks it."""
    found: Any = tf.compat.v1
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def own() -> dict[str, dict[str, Any]]:
    """Returns the parts, with the names that this module defines."""
    keys = types.SimpleNamespace(TRAIN="train", EVAL="eval", INFER="infer")
    run_config = _attribute("estimator.RunConfig")
    return {
        "tpu": {},
        "training": {"HParams": HParams},
        "quantize": {},
        "learn": {"ModeKeys": keys, **({"RunConfig": run_config} if run_config else {})},
        "seq2seq": {"sequence_loss": sequence_loss},
    }


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Optional[Callable] = None,
    name: Optional[str] = None,
) -> Any:
    """Returns the weighted cross entropy of sequences: logits (batch, time, classes), targets
    (batch, time) of int, weights (batch, time) of float. Averages divide the sum over the axes by
    the sum of the weights; sums divide it by the number of weights that are not 0. ValueError: one
    axis is averaged and one is summed."""
    averaged = [average_across_batch, average_across_timesteps]
    summed = [sum_over_batch, sum_over_timesteps]
    if any(averaged) and any(summed):
        raise ValueError("sequence_loss: average_across_… and sum_over_… exclude each other")
    loss = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name or "sequence_loss"):
        rows = tf.reshape(logits, [-1, tf.shape(logits)[2]])
        losses = loss(labels=tf.reshape(targets, [-1]), logits=rows)
        losses = tf.reshape(losses, tf.shape(targets)) * weights
        axes = [axis for axis in (0, 1) if averaged[axis] or summed[axis]]
        if not axes:
            return losses
        counted = weights if any(averaged) else tf.cast(tf.not_equal(weights, 0), losses.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), tf.reduce_sum(counted, axes))


class HParams:
    """Hyperparameters as attributes. Each has the type of its first value. ValueError: a value has
    another type, a name is unknown, or a text is not "name=value,name=[value,value]"."""

    def __init__(self, **values: Any) -> None:
        self._types: dict[str, tuple[type, bool]] = {}
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise ValueError(f"HParams: the name {name} is taken")
        several = isinstance(value, (list, tuple)) and len(value) > 0
        self._types[name] = (type(value[0] if several else value), several)
        setattr(self, name, list(value) if several else value)

    def set_hparam(self, name: str, value: Any) -> None:
        if name not in self._types:
            raise ValueError(f"HParams: there is no parameter {name}")
        kind, several = self._types[name]
        if isinstance(value, (list, tuple)) != several and kind not in (list, tuple, type(None)):
            raise ValueError(f"HParams: {name} is {'a list' if several else 'no list'}")
        cast = [_cast(name, kind, each) for each in (value if several else [value])]
        setattr(self, name, cast if several else cast[0])

    def parse(self, text: str) -> HParams:
        pattern = re.compile(r"\s*(\w+)(?:\[(\d+)\])?\s*=\s*(?:\[([^\]]*)\]|([^,\[]*))\s*(?:,|$)")
        while text:
            if (found := pattern.match(text)) is None:
                raise ValueError(f"HParams: cannot read {text!r}")
            name, index, several, one = found.groups()
            value: Any = one if several is None else [each.strip() for each in several.split(",")]
            if index is not None:
                value = list(getattr(self, name))
                value[int(index)] = one
            self.set_hparam(name, value)
            text = text[found.end() :]
        return self

    def override_from_dict(self, values: dict) -> HParams:
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, text: str) -> HParams:
        return self.override_from_dict(json.loads(text))

    def to_json(self, **options: Any) -> str:
        return json.dumps(self.values(), **options)

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values().get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __repr__(self) -> str:
        return f"HParams({self.values()})"


def _cast(name: str, kind: type, value: Any) -> Any:
    """Converts a value or a text to the parameter's type."""
    if value is None or isinstance(value, kind) and type(value) is not bool or kind is type(None):
        return value
    truth = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if kind is bool and truth is not None:
        return truth
    if kind in (int, float) and type(value) in (str, int):
        return kind(value)
    raise ValueError(f"HParams: {name}={value!r} is no {kind.__name__}")
