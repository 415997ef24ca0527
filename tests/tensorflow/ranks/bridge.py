"""npu_bridge on several ranks: a script as for an NPU."""

from npu_bridge.npu_init import *  # noqa: F403  as scripts do

import numpy as np

sess, npu_shutdown = init_resource()  # noqa: F405
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
total = size * (size + 1) / 2

# Fifteen collectives that do not depend on each other: the order is that of the program.
mine = tf.constant([1.0, 2.0]) * (rank + 1)  # noqa: F405
many = [hccl_ops.allreduce(mine * i, "sum", fusion=0) for i in range(12)]  # noqa: F405
many += [
    hccl_ops.broadcast([mine], 1)[0],  # noqa: F405
    hccl_ops.allgather(mine, size),  # noqa: F405
    hccl_ops.reduce_scatter(tf.ones([size, 3]), "max", size),  # noqa: F405
]
for _ in range(200):
    results = sess.run(many)
    np.testing.assert_allclose(results[3], [3 * total, 6 * total])
np.testing.assert_allclose(results[12], [2.0, 4.0])
assert results[13].shape == (2 * size,) and results[14].shape == (1, 3)
np.testing.assert_allclose(sess.run(many[5]), [5 * total, 10 * total])  # alone
shutdown_resource(sess, npu_shutdown)  # noqa: F405
close_session(sess)  # noqa: F405

# A step is skipped on all ranks where one overflows.
weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())  # noqa: F405
rate = tf.placeholder(tf.float32, [])  # noqa: F405
manager = ExponentialUpdateLossScaleManager(16.0, 2, 1, 2, 0.5)  # noqa: F405
optimizer = NPUOptimizer(  # noqa: F405
    tf.train.GradientDescentOptimizer(1.0), manager, is_distributed=True, is_loss_scale=True  # noqa: F405
)
step = optimizer.minimize(weight * rate)
with tf.Session() as sess:  # noqa: F405
    sess.run(tf.global_variables_initializer())  # noqa: F405
    sess.run(step, {rate: np.inf if rank == 1 else 1.0})
    assert sess.run([weight, manager.get_loss_scale()]) == [0.0, 8.0]
    for _ in range(2):
        sess.run(step, {rate: rank})
    value, scale = sess.run([weight, manager.get_loss_scale()])
    np.testing.assert_allclose(value, -(size - 1.0), rtol=1e-6)
    assert scale == 16.0
print("all well")
