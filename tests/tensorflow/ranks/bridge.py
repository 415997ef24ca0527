"""npu_bridge on several ranks, used as a script for an NPU uses it."""

from npu_bridge.npu_init import *  # noqa: F403  as scripts do

import numpy as np

sess, npu_shutdown = init_resource()  # noqa: F405
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
total = size * (size + 1) / 2

# Fifteen collectives that do not depend on each other run in the order of the program.
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

# Reduces a list with sparse gradients whose numbers of rows differ between ranks; a mean over a group, too, divides by
# all ranks.
if rank < 2:
    create_group("first", 2, [0, 1])  # noqa: F405
rows = tf.tile(mine[:1, None], [rank + 1, 1])  # noqa: F405
slices = tf.IndexedSlices(rows, tf.fill([rank + 1], rank), tf.constant([size, 1]))  # noqa: F405
reduced = npu_allreduce([mine, None, slices]) + [npu_allreduce(mine, "sum")]  # noqa: F405
reduced += [npu_allreduce(mine, group="first")] if rank < 2 else []  # noqa: F405
with tf.Session() as sess:  # noqa: F405
    dense, sparse, whole, *part = sess.run([each for each in reduced if each is not None])
np.testing.assert_allclose(dense, np.array([1, 2]) * total / size)
owners = np.repeat(np.arange(size), np.arange(size) + 1)
assert reduced[1] is None and sparse.indices.tolist() == owners.tolist()
np.testing.assert_allclose(sparse.values[:, 0], (owners + 1) / size)
np.testing.assert_allclose(whole, [total, 2 * total])
assert not part or np.allclose(part, np.array([3.0, 6.0]) / size)

# When a hook is used again, it broadcasts in the new graph, too.
hook = NPUBroadcastGlobalVariablesHook(0)  # noqa: F405
for _ in range(2):
    with tf.Graph().as_default():  # noqa: F405
        own = tf.get_variable("own", initializer=float(rank + 1))  # noqa: F405
        with tf.train.MonitoredSession(hooks=[hook]) as sess:  # noqa: F405
            assert sess.run(own) == 1.0

# All ranks skip a step if a gradient overflows on one of them.
weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())  # noqa: F405
rate = tf.placeholder(tf.float32, [])  # noqa: F405
manager = ExponentialUpdateLossScaleManager(16.0, 2, 1, 2, 0.5)  # noqa: F405
optimizer = NPUOptimizer(  # noqa: F405
    tf.train.MomentumOptimizer(1.0, 0.0), manager, is_distributed=True, is_loss_scale=True  # noqa: F405
)
step = optimizer.minimize(weight * rate)
assert optimizer.get_slot(weight, "momentum") is not None and optimizer.get_slot_names() == ["momentum"]
with tf.Session() as sess:  # noqa: F405
    sess.run(tf.global_variables_initializer())  # noqa: F405
    sess.run(step, {rate: np.inf if rank == 1 else 1.0})
    assert sess.run([weight, manager.get_loss_scale()]) == [0.0, 8.0]
    for _ in range(2):
        sess.run(step, {rate: rank})
    value, scale = sess.run([weight, manager.get_loss_scale()])
    np.testing.assert_allclose(value, -(size - 1.0), rtol=1e-6)
    assert scale == 16.0

# Collectives in branches and loops, with others around them; the branch is taken or not.
taken = tf.placeholder(tf.bool, [])  # noqa: F405
one = hccl_ops.allreduce(mine, "sum", fusion=0)  # noqa: F405
either = tf.cond(  # noqa: F405
    taken,
    lambda: hccl_ops.allreduce(one, "sum", fusion=0),  # noqa: F405
    lambda: hccl_ops.broadcast([one * 0], 1)[0],  # noqa: F405
)
_, looped = tf.while_loop(  # noqa: F405
    lambda i, _: i < 3,
    lambda i, value: (i + 1, hccl_ops.allreduce(value, "max", fusion=0)),  # noqa: F405
    (tf.constant(0), either),  # noqa: F405
)
last = hccl_ops.allreduce(looped + 1, "sum", fusion=0)  # noqa: F405
with tf.Session() as sess:  # noqa: F405
    for take in (False, True, False):
        of_branch, of_all = sess.run([either, last], {taken: take})
        want = np.array([1, 2]) * total * (size if take else 0)
        np.testing.assert_allclose(of_branch, want)
        np.testing.assert_allclose(of_all, (want + 1) * size)
print("all well")
