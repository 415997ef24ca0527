"""Detection in the form of SSD's: slim's layers in an arg_scope, batch normalization, MonitoredTrainingSession."""

from npu_bridge.npu_init import *  # noqa: F403

import sys

import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from made import ROWS, share, tell
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib import quantize as contrib_quantize  # noqa: F401  imported, not used, as in detection
from tensorflow.contrib.framework import arg_scope

init, stop = init_resource()  # noqa: F405
place = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
boxes = np.abs(share(ROWS, *place)).repeat(6, 2).reshape(12, -1, 6, 6, 1)
images = tf.data.Dataset.from_tensor_slices(boxes).repeat()
images = images.make_one_shot_iterator().get_next()
start = tf.constant_initializer(np.random.RandomState(3).uniform(-0.3, 0.3, 36).astype("float32"))
with arg_scope(
    [slim.conv2d],
    activation_fn=tf.nn.relu,
    weights_initializer=start,
    weights_regularizer=contrib_layers.l2_regularizer(1e-4),
    normalizer_fn=slim.batch_norm,
    normalizer_params={"is_training": False, "center": True},
):
    net = slim.conv2d(images, 4, [3, 3], scope="conv1")
    net = slim.max_pool2d(net, [2, 2], scope="pool1")
    net = slim.flatten(net)
predictions = tf.layers.dense(net, 4, kernel_initializer=tf.constant_initializer(0.05), name="box")
targets = tf.stack([tf.reduce_mean(images, [1, 2, 3]), tf.reduce_max(images, [1, 2, 3])] * 2, 1)
tf.losses.huber_loss(targets, predictions)
total_loss = tf.losses.get_total_loss()
global_step = slim.get_or_create_global_step()
optimizer = NPUDistributedOptimizer(tf.train.MomentumOptimizer(0.05, momentum=0.9))  # noqa: F405
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    train = optimizer.minimize(total_loss, global_step=global_step)
mean = hccl_ops.allreduce(total_loss, "sum", fusion=0) / place[1]  # noqa: F405
averages = tf.train.ExponentialMovingAverage(0.9, global_step)
with tf.control_dependencies([train]):
    train = averages.apply(tf.trainable_variables())
hooks = npu_hooks_append([tf.train.StopAtStepHook(last_step=36), tf.train.NanTensorHook(total_loss)])  # noqa: F405
losses, weights = [], []
config = npu_config_proto(tf.ConfigProto(allow_soft_placement=True))  # noqa: F405
folder = f"{sys.argv[1]}/{place[0]}"
with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks, config=config) as sess:
    while not sess.should_stop():
        losses.append(sess.run([train, mean])[1])
        weights = sess.run_step_fn(lambda step_context: step_context.session.run(tf.trainable_variables()))
tell(losses, weights)
shutdown_resource(init, stop)  # noqa: F405
