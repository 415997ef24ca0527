"""hccl.tensorflow used like Horovod: functions that only one rank traces again, and gradients."""

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


# The last batches of the ranks have different lengths.
@tf.function
def step(x):
    sums, mean = hvd.grouped_allreduce([tf.reduce_sum(x, 0), tf.reduce_mean(x)], op=hvd.Sum)
    return sums, mean


for rows in [[4, 4, 4, 2], [4, 3, 4, 1]][min(RANK, 1)]:
    before = hvd.allreduce(tf.constant(float(rows)), op=hvd.Sum)
    got, ones = step(tf.ones([rows, 2]))
    np.testing.assert_allclose(got, [before, before])
    assert ones.numpy() == SIZE

# Each rank has one row more than the rank before, and weights all rows by its own number.
x = tf.Variable(tf.ones([RANK + 1, 2]))
root = tf.Variable([1.0, 2.0])
number = tf.constant(RANK + 1.0)


def gradients():
    with tf.GradientTape(persistent=True) as tape:
        gathered = hvd.allgather(x)
        weights = tf.range(1.0, 1.0 + tf.cast(tf.shape(gathered)[0], tf.float32))
        far = tf.reduce_sum(number * weights[:, None] * gathered)
        given = tf.reduce_sum(number * hvd.broadcast(root, 1))
    return tape.gradient(far, x), tape.gradient(given, root)


mean = (SIZE + 1) / 2  # Horovod's gradients of both are means
first = RANK * (RANK + 1) // 2
for how in (gradients, tf.function(gradients)):
    of_rows, of_root = how()
    want = mean * np.arange(first + 1, first + RANK + 2)
    np.testing.assert_allclose(of_rows, np.repeat(want[:, None], 2, 1))
    np.testing.assert_allclose(of_root, [mean, mean] if RANK == 1 else [0, 0])

# Gradients of collectives in conditionals and loops, also in one inside the other. The value of each
# function has the derivative of one call of the collective.
KINDS = {
    "allreduce": (lambda x: hvd.allreduce(x, op=hvd.Sum), SIZE),
    "broadcast": (lambda x: hvd.broadcast(x, 0), RANK == 0),
    "allgather": (lambda x: tf.reduce_sum(hvd.allgather(x), 0, keepdims=True), 1),
    "alltoall": (lambda x: tf.ensure_shape(hvd.alltoall(tf.tile(x, [SIZE]))[:1], [1]), SIZE * (RANK == 0)),
    "reducescatter": (lambda x: hvd.reducescatter(tf.tile(x, [SIZE])), SIZE),
}


def branch(collective, x):
    return collective(x) if tf.reduce_sum(x) > -1.0 else x


def branch_of_loop(collective, x):
    result = tf.zeros_like(x)
    for i in tf.range(3):
        if i > 1:
            result += collective(x)
    return result


def mapped(collective, x):
    return tf.map_fn(collective, tf.stack([x, x]), fn_output_signature=tf.TensorSpec([1]))[1]


def derivative(function, collective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(collective, x)
    return tape.gradient(y, x)


for name, (collective, want) in KINDS.items():
    for flow in (branch, branch_of_loop, mapped):
        inner = tf.function(flow)
        for kind, got in (
            ("tape outside", derivative(inner, collective, tf.constant([1.0]))),
            ("tape inside", tf.function(derivative)(flow, collective, tf.constant([1.0]))),
            ("collective in a function", derivative(inner, tf.function(collective), tf.constant([1.0]))),
            ("function in function", tf.function(derivative)(inner, collective, tf.constant([1.0]))),
        ):
            np.testing.assert_allclose(got, [want], err_msg=f"{name}, {flow.__name__}, {kind}")
hvd.shutdown()
