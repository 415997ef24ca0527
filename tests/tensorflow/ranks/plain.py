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


total = SIZE * (SIZE + 1) / 2
first = RANK * (RANK + 1) // 2
for how in (gradients, tf.function(gradients)):
    of_rows, of_root = how()
    want = total * np.arange(first + 1, first + RANK + 2)
    np.testing.assert_allclose(of_rows, np.repeat(want[:, None], 2, 1))
    np.testing.assert_allclose(of_root, [total, total] if RANK == 1 else [0, 0])
hvd.shutdown()
