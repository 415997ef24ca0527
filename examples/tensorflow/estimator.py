#!/usr/bin/env python3
"""An NPUEstimator (TensorFlow 2.15): mpirun -np 4 python examples/tensorflow/estimator.py [DIRECTORY of traces]"""

from npu_bridge.npu_init import *  # noqa: F403  tf included

import tempfile

import digits

BATCH = 60
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
set_split_strategy_by_size([60, 40])  # noqa: F405
train, test = digits.load()


def train_data():
    dataset = tf.data.Dataset.from_tensor_slices(train).shard(size, rank)  # noqa: F405
    return dataset.repeat().batch(BATCH // size)


def test_data():
    return tf.data.Dataset.from_tensor_slices(test).batch(297)  # noqa: F405


def model_fn(features, labels, mode):
    hidden = tf.layers.dense(features, 64, activation=tf.nn.relu)  # noqa: F405
    logits = tf.layers.dense(hidden, 10)  # noqa: F405
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)  # noqa: F405
    optimizer = npu_tf_optimizer(tf.train.GradientDescentOptimizer(0.1))  # noqa: F405
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())  # noqa: F405
    right = tf.metrics.accuracy(labels, tf.argmax(logits, 1))  # noqa: F405
    return NPUEstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": right})  # noqa: F405


options = digits.profiling_options()
config = NPURunConfig(  # noqa: F405
    iterations_per_loop=10,
    hcom_parallel=True,
    save_checkpoints_steps=250,
    profiling_config=ProfilingConfig(options != "", options),  # noqa: F405
)
estimator = NPUEstimator(model_fn, model_dir=tempfile.mkdtemp(), config=config)  # noqa: F405
estimator.train(train_data, max_steps=250)
accuracy = estimator.evaluate(test_data)["accuracy"]
print(f"rank {rank} of {size}: accuracy {accuracy:.3f}")
