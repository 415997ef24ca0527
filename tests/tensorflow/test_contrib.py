"""The parts of tf.contrib that scripts import, without the parts that test_bridge tests."""

import numpy as np
import tensorflow as tf
from conftest import run

BEGIN = "from npu_bridge.npu_init import *\nimport numpy as np\n"


def outcome(text):
    done = run("-c", BEGIN + text)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


HPARAMS = """
from tensorflow.contrib.training.python.training.hparam import HParams
hparams = HParams(steps=5, rate=0.5, kind="lstm", sizes=[8, 16], residual=True, path=None)
assert hparams.parse("steps=7,rate=2,kind=gru,sizes=[1,2,3],sizes[1]=9,residual=false") is hparams
print(list(hparams.values().values()) == [7, 2.0, "gru", [1, 9, 3], False, None], type(hparams.rate) is float)
hparams.add_hparam("beam", 4)
hparams.override_from_dict({"steps": 8}).parse_json('{"path": "/data"}')
print("beam" in hparams, hparams.get("none", 3), hparams.steps, hparams.path, hparams.to_json(sort_keys=True)[:10])
for wrong in ("steps=1.5", "stepz=1", "sizes=1", "residual=7", "steps"):
    try:
        hparams.parse(wrong)
    except ValueError:
        print("ValueError", hparams.steps)
"""


def test_hyperparameters_keep_their_types():
    lines = outcome(HPARAMS)
    assert lines[:2] == ["True True", 'True 3 8 /data {"beam": 4'] and lines[2:] == ["ValueError 8"] * 5


LOSS = """
random = np.random.RandomState(0)
logits, targets = random.randn(3, 4, 5).astype("f"), random.randint(5, size=(3, 4))
weights = (random.rand(3, 4) * (random.rand(3, 4) > 0.3)).astype("f")
rows = logits - np.log(np.exp(logits).sum(2, keepdims=True))
losses = -np.take_along_axis(rows, targets[..., None], 2)[..., 0] * weights
used = (weights != 0).astype("f")
loss = tf.contrib.seq2seq.sequence_loss
wanted = [
    ({}, losses.sum() / weights.sum()),
    ({"average_across_timesteps": False}, losses.sum(0) / np.maximum(weights.sum(0), 1e-9)),
    ({"average_across_batch": False}, losses.sum(1) / np.maximum(weights.sum(1), 1e-9)),
]
none = {"average_across_timesteps": False, "average_across_batch": False}
wanted += [
    (none, losses),
    ({**none, "sum_over_timesteps": True}, losses.sum(1) / np.maximum(used.sum(1), 1)),
    ({**none, "sum_over_timesteps": True, "sum_over_batch": True}, losses.sum() / used.sum()),
]
with tf.Session() as sess:
    for options, want in wanted:
        got = sess.run(loss(tf.constant(logits), tf.constant(targets), tf.constant(weights), **options))
        np.testing.assert_allclose(got, want, 1e-4, 1e-6, err_msg=str(options))
try:
    loss(logits, targets, weights, sum_over_batch=True)
except ValueError:
    print("ValueError")
"""


def test_the_loss_of_sequences_is_numpys():
    assert outcome(LOSS) == ["ValueError"]


GONE = """
from tensorflow.contrib import quantize as contrib_quantize, seq2seq
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.datasets.mnist import read_data_sets
from tensorflow.contrib.seq2seq.python.ops import attention_wrapper, helper

class Sampler(helper.Helper):
    pass

for use in (
    Sampler,
    contrib_quantize.create_training_graph,
    lambda: learn_runner.run(None),
    read_data_sets,
    lambda: attention_wrapper.BahdanauAttention(8, None),
    lambda: tf.contrib.learn.preprocessing.VocabularyProcessor(8),
    lambda: tf.contrib.tpu.keras_to_tpu_model(None),
    lambda: tf.contrib.training.bucket([], 1, 2, 3),
):
    try:
        use()
    except NotImplementedError as error:
        print(error)
"""


def test_names_that_are_gone_are_errors_at_use_that_name_a_replacement():
    lines = outcome(GONE)
    instead = ("raw_rnn", "model_optimization", "train_and_evaluate", "tf_slim", "tensorflow_addons")
    instead += ("TextVectorization", "TPUStrategy", "tf.data")
    assert len(lines) == len(instead) and all(a in b for a, b in zip(instead, lines)), lines


TPU = """
import sys
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer

def model_fn(features, labels, mode, params):
    x = features["x"]
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(weight * x - 3.0 * x))
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss, tf.train.get_or_create_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train)

def input_fn(params):
    return tf.data.Dataset.from_tensors({"x": tf.ones([params["batch_size"]])}).repeat()

assert tpu_config.TPUConfig is tf.contrib.tpu.TPUConfig and tpu_optimizer.CrossShardOptimizer
per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
config = tf.contrib.tpu.RunConfig(
    cluster=None, master=None, model_dir=sys.argv[1], save_checkpoints_steps=10,
    tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=10, num_shards=8, per_host_input_for_training=per_host),
)
estimator = tpu_estimator.TPUEstimator(use_tpu=False, model_fn=model_fn, config=config, train_batch_size=4)
estimator.train(input_fn, max_steps=10)
print(estimator.get_variable_value("weight"))
"""


def test_an_estimator_of_bert_trains_without_a_tpu(tmp_path):
    done = run("-c", BEGIN + TPU, tmp_path)
    if tf.__version__.startswith("2.15"):
        assert np.isclose(float(done.stdout.split()[-1]), 3.0), done.stderr[-3000:]
    else:  # this TensorFlow has no Estimator
        assert "NotImplementedError: tf.contrib.tpu.InputPipelineConfig: " in done.stderr and "2.15" in done.stderr
