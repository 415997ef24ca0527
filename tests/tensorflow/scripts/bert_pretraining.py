"""Pretraining in the form of BERT's: flags, NPUEstimator with loops, hooks that fetch by name, warmup, clipping."""

import os
import sys

import tensorflow as tf
from made import IDS, share, tell
from npu_bridge.estimator import npu_ops
from npu_bridge.estimator.npu.npu_config import *  # noqa: F403
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_estimator import *  # noqa: F403
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
from npu_bridge.estimator.npu.npu_loss_scale_manager import ExponentialUpdateLossScaleManager
from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
from npu_bridge.estimator.npu_unary_ops import npu_unary_ops
from tensorflow.core.protobuf import rewriter_config_pb2  # noqa: F401

os.environ["HCCL_CONNECT_TIMEOUT"] = "600"
flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", sys.argv[1], "")
flags.DEFINE_bool("distributed", True, "")
flags.DEFINE_integer("iterations_per_loop", 2, "")
seen, weights = [], []


class _LogSessionRunHook(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs(fetches=["global_step:0", "total_loss:0", "learning_rate:0"])

    def after_run(self, run_context, run_values):
        seen.append(run_values.results)

    def end(self, session):
        weights.extend(session.run(tf.trainable_variables()))


def dense(x, units, name, activation=None):
    start = tf.random_uniform_initializer(-0.3, 0.3, seed=len(name) + units)
    return tf.layers.dense(x, units, activation, kernel_initializer=start, name=name)


def model_fn(features, labels, mode, params):
    with tf.variable_scope("bert/embeddings"):
        start = tf.random_uniform_initializer(-0.3, 0.3, seed=4)
        table = tf.get_variable("word_embeddings", [20, 8], initializer=start)
        x = tf.reshape(tf.one_hot(features["input_ids"], 20) @ table, [-1, 5, 8])
    query, key, value = (dense(x, 8, name) for name in ("query", "key_", "value__"))
    probs = npu_ops.dropout(tf.nn.softmax(tf.matmul(query, key, transpose_b=True)), 1.0)
    x = tf.contrib.layers.layer_norm(x + probs @ value, begin_norm_axis=-1)
    x = dense(x, 8, "transform", npu_unary_ops.gelu)
    log_probs = tf.nn.log_softmax(tf.matmul(tf.reshape(x, [-1, 8]), table, transpose_b=True))
    loss = -tf.reduce_mean(tf.reduce_sum(log_probs * tf.one_hot(tf.reshape(labels, [-1]), 20), -1))
    loss = tf.identity(loss, name="total_loss")
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(0.05, step, 48, end_learning_rate=0.0, power=1.0)
    warm = tf.cast(step < 4, tf.float32)
    rate = tf.identity(warm * 0.05 * tf.cast(step, tf.float32) / 4 + (1 - warm) * rate, name="learning_rate")
    optimizer = NPUDistributedOptimizer(tf.train.AdamOptimizer(rate))
    manager = ExponentialUpdateLossScaleManager(2**10, 1000, 2, 2, 0.5)
    optimizer = NPULossScaleOptimizer(optimizer, manager, is_distributed=True)
    grads, tvars = zip(*optimizer.compute_gradients(loss))
    clipped, _ = tf.clip_by_global_norm(grads, clip_norm=1.0)
    train = optimizer.apply_gradients(zip(clipped, tvars), global_step=step)
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train)


def input_fn():
    rank, size = int(os.environ.get("RANK_ID", 0)), int(os.environ.get("RANK_SIZE", 1))
    ids = share(IDS, rank, size)
    data = tf.data.Dataset.from_tensor_slices(({"input_ids": ids}, ids)).repeat()
    return data.map(lambda features, labels: (features, tf.cast(labels, tf.int32)))


def main(_):
    config = NPURunConfig(
        model_dir=FLAGS.output_dir,
        save_checkpoints_steps=24,
        session_config=tf.ConfigProto(allow_soft_placement=True),
        iterations_per_loop=FLAGS.iterations_per_loop,
        hcom_parallel=True,
        is_tailing_optimization=False,
        precision_mode="allow_mix_precision",
    )
    estimator = NPUEstimator(model_fn=model_fn, config=config, params={})
    estimator.train(input_fn=input_fn, hooks=[_LogSessionRunHook()], max_steps=48)
    size = int(os.environ.get("RANK_SIZE", 1))
    assert [int(each[0]) for each in seen] == list(range(2, 49, 2)), seen
    from npu_bridge.hccl import hccl_ops

    with tf.Session() as sess:
        mean = sess.run(hccl_ops.allreduce(tf.constant([each[1] for each in seen]), "sum")) / size
    tell(mean, weights)


if __name__ == "__main__":
    tf.app.run()
