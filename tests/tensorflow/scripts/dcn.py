"""A recommender in the form of DCN's: a dataset with an iterator to initialize, a custom step, loss scaling."""

from npu_bridge.npu_init import *  # noqa: F403

import numpy as np
import tensorflow as tf
from made import LABELS, ROWS, tell


def input_fn(rank, size):
    data = tf.data.Dataset.from_tensor_slices({"vals": ROWS.reshape(-1, 6), "label": LABELS.ravel()})
    return data.shard(size, rank).batch(8 // size, drop_remainder=True).repeat(4)


sess_config = tf.ConfigProto()
custom_op = sess_config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["dynamic_input"].b = True
custom_op.parameter_map["dynamic_graph_execute_mode"].s = tf.compat.as_bytes("lazy_recompile")
sess_config.graph_options.rewrite_options.remapping = RewriterConfig.OFF  # noqa: F405
sess_config.graph_options.rewrite_options.memory_optimization = RewriterConfig.OFF  # noqa: F405
init_sess, shutdown = init_resource(config=sess_config)  # noqa: F405
rank, size = get_rank_id(), get_rank_size()  # noqa: F405

with tf.device("/cpu:0"):
    iterator = input_fn(rank, size).make_initializable_iterator()
    element = iterator.get_next()
    x0, label = tf.reshape(element["vals"], [-1, 6]), tf.reshape(element["label"], [-1])
    with tf.variable_scope(tf.get_variable_scope()):
        global_step = tf.get_variable("global_step", [], tf.int32, tf.constant_initializer(0), trainable=False)
        x = x0
        for i in range(2):
            w = tf.get_variable(f"cross_{i}", [6, 1], initializer=tf.constant_initializer(0.1))
            x = x0 * tf.matmul(x, w) + x
            tf.add_to_collection("deep", w)
        out = tf.get_variable("out", [6, 2], initializer=tf.constant_initializer(0.1))
        out = npu_ops.dropout(x, 1.0) @ out  # noqa: F405
    log_loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=out))
    l2_loss = 1e-4 * tf.add_n([tf.nn.l2_loss(v) for v in tf.get_collection("deep")])
    manager = ExponentialUpdateLossScaleManager(  # noqa: F405
        init_loss_scale=2**32, incr_every_n_steps=1000, decr_every_n_nan_or_inf=2, decr_ratio=0.5
    )
    optimizer = npu_tf_optimizer(tf.train.AdamOptimizer(learning_rate=0.05, epsilon=5e-8))  # noqa: F405
    optimizer = NPULossScaleOptimizer(optimizer, manager, is_distributed=size > 1)  # noqa: F405
    train = optimizer.minimize(loss=log_loss + l2_loss, global_step=global_step)

losses = []
with tf.Session(config=sess_config) as sess:
    sess.run([tf.global_variables_initializer(), iterator.initializer])
    mean = hccl_ops.allreduce(log_loss, "sum", fusion=0) / size  # noqa: F405
    while True:
        try:
            losses.append(sess.run([train, mean, l2_loss])[1])
        except tf.errors.OutOfRangeError:
            break
    assert sess.run(global_step) == len(losses) == 48
    tell(losses, sess.run(tf.trainable_variables()))
shutdown_resource(init_sess, shutdown)  # noqa: F405
close_session(init_sess)  # noqa: F405
