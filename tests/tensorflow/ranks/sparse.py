"""Sparse gradients with different numbers of rows on the ranks, compared with NumPy."""

import hccl.tensorflow as hvd
import npu_device as npu
import numpy as np
import tensorflow as tf

hvd.init()
rank, size = hvd.rank(), hvd.size()
ROWS, RATE = 50, 0.5
ids = [[3, 7, 3], [7, 49]]  # each rank's
mean = np.zeros((ROWS, 2), "float32")
for own in ids:
    np.add.at(mean, own, 1 / size)

kinds = []


class Optimizer(tf.keras.optimizers.SGD):
    """Records the gradients that it must apply: Keras 3 calls apply, Keras 2 apply_gradients."""

    if hasattr(tf.keras.optimizers.SGD, "apply"):

        def apply(self, grads, trainable_variables=None):
            kinds.append(type(grads[0]).__name__)
            return super().apply(grads, trainable_variables)

    else:

        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            pairs = list(grads_and_vars)
            kinds.append(type(pairs[0][0]).__name__)
            return super().apply_gradients(pairs, *args, **kwargs)


def step(optimizer, function):
    table, weight = tf.Variable(tf.zeros([ROWS, 2]), name="table"), tf.Variable(tf.zeros([]), name="weight")

    def run():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.gather(table, ids[rank])) + weight * (1 + rank)
        optimizer.apply_gradients(zip(tape.gradient(value, [table, weight]), [table, weight]))

    if hasattr(optimizer, "build"):
        optimizer.build([table, weight])
    (tf.function(run) if function else run)()
    np.testing.assert_allclose(table.numpy(), -RATE * mean)
    np.testing.assert_allclose(weight.numpy(), -RATE * 1.5)


def applied(wrap, function):
    """Returns how the optimizer gets the table's gradients after they are reduced."""
    step(wrap(Optimizer(RATE)), function)
    return kinds[-1]


npu.open().as_default()
for function in (False, True):
    for wrap in (hvd.DistributedOptimizer, npu.distribute.npu_distributed_keras_optimizer_wrapper):
        assert applied(wrap, function) == "IndexedSlices", wrap
    assert applied(lambda own: hvd.DistributedOptimizer(own, sparse_as_dense=True), function) != "IndexedSlices"

slices = tf.IndexedSlices(tf.ones([len(ids[rank]), 2]), tf.constant(ids[rank]), [ROWS, 2])
found = npu.distribute.all_reduce([slices, tf.ones([])], "mean")[0]
assert isinstance(found, tf.IndexedSlices)
np.testing.assert_allclose(tf.convert_to_tensor(found).numpy(), mean)
with tf.GradientTape() as tape:
    table = tf.Variable(tf.zeros([ROWS, 2]))
    value = tf.reduce_sum(tf.gather(table, ids[rank]))
(found,) = hvd.DistributedGradientTape(tape).gradient(value, [table])
assert isinstance(found, tf.IndexedSlices) and found.indices.shape[0] == 5
np.testing.assert_allclose(tf.convert_to_tensor(found).numpy(), mean)
print("all well")
