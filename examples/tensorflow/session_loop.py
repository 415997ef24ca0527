#!/usr/bin/env python3
"""TensorFlow 1 with ten steps in each session.run: mpirun -np 4 python
examples/tensorflow/session_loop.py [DIRECTORY of traces]"""

from npu_bridge.npu_init import *  # noqa: F403  tf included

import digits

STEPS, LOOP, BATCH = 250, 10, 60
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
set_split_strategy_by_size([60, 40])  # noqa: F405
(images, labels), test = digits.load()
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shard(size, rank)  # noqa: F405
iterator = tf.data.make_initializable_iterator(dataset.repeat().batch(BATCH // size))  # noqa: F405


def logits_of(x):
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):  # noqa: F405
        hidden = tf.nn.relu(  # noqa: F405
            tf.matmul(x, tf.get_variable("w1", [64, 64])) + tf.get_variable("b1", [64])  # noqa: F405
        )
        return tf.matmul(hidden, tf.get_variable("w2", [64, 10])) + tf.get_variable("b2", [10])  # noqa: F405


x, y = iterator.get_next()
loss = tf.reduce_mean(  # noqa: F405
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x))  # noqa: F405
)
optimizer = npu_tf_optimizer(tf.train.GradientDescentOptimizer(0.1))  # noqa: F405
train_op = optimizer.minimize(loss)
right = tf.equal(tf.argmax(logits_of(test[0]), 1), test[1])  # noqa: F405
accuracy = tf.reduce_mean(tf.cast(right, tf.float32))  # noqa: F405

config = tf.ConfigProto()  # noqa: F405
custom = config.graph_options.rewrite_options.custom_optimizers.add()
custom.name = "NpuOptimizer"
custom.parameter_map["use_off_line"].b = True
custom.parameter_map["hcom_parallel"].b = True
custom.parameter_map["iterations_per_loop"].i = LOOP
custom.parameter_map["profiling_mode"].b = digits.profiling_options() != ""
custom.parameter_map["profiling_options"].s = digits.profiling_options().encode()
broadcast = NPUBroadcastGlobalVariablesHook(0)  # noqa: F405
broadcast.begin()
with tf.Session(config=config) as sess:  # noqa: F405
    sess.run([tf.global_variables_initializer(), iterator.initializer])  # noqa: F405
    broadcast.after_create_session(sess, None)
    train_op = util.set_iteration_per_loop(sess, train_op, LOOP)  # noqa: F405
    for _ in range(STEPS // LOOP):
        sess.run([train_op, loss])
    print(f"rank {rank} of {size}: accuracy {sess.run(accuracy):.3f}")
