"""Video enhancement in the form of EDVR's: an own broadcast of all variables, gradients averaged by allreduce."""

from npu_bridge.estimator import npu_ops  # noqa: F401
from npu_bridge.estimator.npu.npu_config import NPURunConfig  # noqa: F401
from npu_bridge.estimator.npu.npu_estimator import NPUEstimator  # noqa: F401
from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer, allreduce  # noqa: F401
from npu_bridge.hccl import hccl_ops

import numpy as np
import tensorflow as tf
from hccl.manage.api import get_rank_id, get_rank_size
from made import ROWS, share, tell


def npu_broadcast(sess, root_rank=0):
    op_list = []
    for var in tf.global_variables():
        if "float" in var.dtype.name:
            outputs = hccl_ops.broadcast(tensor=[var], root_rank=root_rank)
            if outputs is not None:
                op_list.append(outputs[0].op)
                op_list.append(tf.assign(var, outputs[0]))
    sess.run(tf.group(op_list))


frames = tf.placeholder(tf.float32, [None, 6, 1])
kernel = tf.get_variable("kernel", [3, 1, 4], initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=None))
last = tf.get_variable("last", [4, 1], initializer=tf.constant_initializer(0.5))
start = np.random.RandomState(1).uniform(-0.5, 0.5, (3, 1, 4)).astype("float32")
restored = tf.nn.conv1d(frames, kernel, stride=1, padding="SAME") @ last + frames
loss = tf.reduce_mean(tf.sqrt(tf.square(restored - 2.0 * frames) + 1e-6))  # Charbonnier's
optimizer = tf.train.AdamOptimizer(tf.train.exponential_decay(0.05, tf.train.get_or_create_global_step(), 20, 0.9))
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    npu_broadcast(sess, 0)
    rank, size = get_rank_id(), get_rank_size()
    sess.run(kernel.assign(start if rank == 0 else start * 0))
    npu_broadcast(sess, 0)
    pairs = [(hccl_ops.allreduce(g / size, "sum"), v) for g, v in optimizer.compute_gradients(loss)]
    train = optimizer.apply_gradients(pairs, global_step=tf.train.get_global_step())
    sess.run(tf.variables_initializer([v for v in tf.global_variables() if v not in (kernel, last)]))
    mean = hccl_ops.allreduce(loss / size, "sum")
    batches = [*share(ROWS, rank, size)] * 3
    losses = [sess.run([train, mean], {frames: batch[:, :, None]})[1] for batch in batches]
    tell(losses, sess.run([kernel, last]))
