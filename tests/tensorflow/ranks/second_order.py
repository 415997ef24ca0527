"""Gradients of gradients, as in a gradient penalty: the loss is the sum of y^3, plus the sum of the squares of its own
gradient. Each rank's tensor differs. The expected values follow from Horovod's rules for first gradients."""

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def of(rank):
    return np.arange(1.0, 2 * SIZE + 1).reshape(SIZE, 2) + rank


def exact(x):
    """The gradient of the sums of y^3 and (3 y^2)^2 where y is x, or x in another place."""
    return 3 * x**2 + 36 * x**3


def meant(x):
    """The same where each first gradient is the mean of all ranks' gradients, which this rank's rows enter once."""
    return 3 * x**2 + 36 * x**3 / SIZE


def penalty(collective, tensor):
    with tf.GradientTape() as outer:
        outer.watch(tensor)
        with tf.GradientTape() as inner:
            inner.watch(tensor)
            loss = tf.reduce_sum(collective(tensor) ** 3)
        gradient = inner.gradient(loss, tensor)
        total = loss + tf.reduce_sum(gradient**2)
    return outer.gradient(total, tensor)


MEAN = np.mean([of(rank) for rank in range(SIZE)], axis=0)
WANT = {
    "allreduce": (hvd.allreduce, exact(MEAN)),
    "allgather": (hvd.allgather, meant(of(RANK))),
    "broadcast": (lambda x: hvd.broadcast(x, SIZE - 1), meant(of(RANK)) if RANK == SIZE - 1 else 0 * MEAN),
    "alltoall": (lambda x: hvd.alltoall(x), exact(of(RANK))),
    "splits": (lambda x: hvd.alltoall(x, tf.ones([SIZE], tf.int64))[0], exact(of(RANK))),
    "reducescatter": (hvd.reducescatter, exact(MEAN)),
}


def in_loop(collective):
    def body(i, x):
        return i + 1, tf.ensure_shape(collective(x), x.shape)

    return lambda x: tf.while_loop(lambda i, _: i < 1, body, (0, x))[1]


def in_branch(collective):
    return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: collective(x), lambda: x)


for call, (collective, want) in WANT.items():
    tensor = tf.constant(of(RANK))
    for run in (penalty, tf.function(penalty)):
        np.testing.assert_allclose(run(collective, tensor), want, rtol=1e-12, err_msg=call)
        for inside in (in_loop, in_branch) if call in ("allreduce", "broadcast", "alltoall") else ():
            np.testing.assert_allclose(run(inside(collective), tensor), want, rtol=1e-12, err_msg=call)


def of_rows(table):
    """A gather's gradient is sparse."""
    with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(tf.gather(hvd.broadcast(table, 0), [0, 0, 1]) ** 3)
    return tf.convert_to_tensor(tape.gradient(loss, table))


for run in (of_rows, tf.function(of_rows)):
    want = 3 * of(0) ** 2 * np.eye(SIZE)[[0, 0, 1]].sum(0)[:, None] if RANK == 0 else 0 * of(0)
    np.testing.assert_allclose(run(tf.constant(of(RANK))), want)

with tf.Graph().as_default():  # TensorFlow 1
    tensor = tf.constant(of(RANK))
    losses = [tf.reduce_sum(collective(tensor) ** 3) for collective, _ in WANT.values()]
    gradients = [tf.gradients(loss, tensor)[0] for loss in losses]
    totals = [loss + tf.reduce_sum(gradient**2) for loss, gradient in zip(losses, gradients)]
    second = [tf.gradients(total, tensor)[0] for total in totals]
    with tf.compat.v1.Session() as session:
        for found, (call, (_, want)) in zip(session.run(second), WANT.items()):
            np.testing.assert_allclose(found, want, rtol=1e-12, err_msg=call)
print("all well")
