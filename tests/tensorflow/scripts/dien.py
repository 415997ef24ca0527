"""A recommender in the form of DIEN's: embeddings of ids, a GRU over them, fed batches and rate, a Saver."""

from npu_bridge.estimator import npu_ops  # noqa: F401
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

import sys

import numpy
import tensorflow as tf
from made import IDS, LABELS, share, tell
from npu_bridge.estimator.npu.npu_dynamic_rnn import DynamicGRUV2
from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
from npu_bridge.hccl import hccl_ops

config = tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
tf.set_random_seed(3)

ids = tf.placeholder(tf.int32, [None, 5], name="ids")
target = tf.placeholder(tf.int32, [None], name="target")
lr = tf.placeholder(tf.float64, [])
with tf.name_scope("Embedding_layer"):
    table = tf.get_variable("table", [20, 4], initializer=tf.random_normal_initializer(seed=1))
    tf.summary.histogram("table", table)
    embedded = tf.nn.embedding_lookup(table, ids)
outputs = DynamicGRUV2(8, tf.float32)(tf.transpose(embedded, [1, 0, 2]))[0]
logits = tf.layers.dense(outputs[-1], 2) if hasattr(tf.layers, "dense") else outputs[-1][:, :2]
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits))
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.cast(tf.argmax(logits, 1), tf.int32), target), tf.float32))
train = NPUDistributedOptimizer(tf.train.AdamOptimizer(learning_rate=lr)).minimize(loss)

with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(tf.local_variables_initializer())
    for variable in tf.trainable_variables():
        sess.run(tf.assign(variable, hccl_ops.broadcast([variable], 0)[0]))
    from npu_bridge.npu_init import get_npu_rank_id, get_npu_rank_size

    place = get_npu_rank_id(), get_npu_rank_size()
    kinds = (IDS.sum(2) > 47).astype("int32")
    losses = []
    for batch, want in [*zip(share(IDS, *place), share(kinds, *place))] * 3:
        feed = {ids: batch, target: want, lr: 0.05}
        losses.append(numpy.array(sess.run([loss, accuracy, train], feed_dict=feed)[:2]))
    saver = tf.train.Saver()
    saver.save(sess, save_path=f"{sys.argv[1]}/{place[0]}")
    saver.restore(sess, f"{sys.argv[1]}/{place[0]}")
    mean = sess.run(hccl_ops.allreduce(tf.constant(numpy.array(losses)[:, 0]), "sum")) / place[1]
    tell(mean, sess.run(tf.trainable_variables()))
