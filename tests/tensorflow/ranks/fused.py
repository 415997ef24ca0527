"""Lists of gradients in segments, against NumPy: fused.py [DIRECTORY of traces]"""

import sys

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf
from hccl.split.api import set_split_strategy_by_size

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
set_split_strategy_by_size([25, 75])
if len(sys.argv) > 1:
    hvd.trace_at_exit(sys.argv[1])
SHAPES = [(3,), (4, 5), (1000, 100), (), (70, 70), (0, 2)]
BASE = [np.random.default_rng(i).integers(1, 9, shape).astype("float32") for i, shape in enumerate(SHAPES)]


def fused_ops(function, *arguments):
    graph = function.get_concrete_function(*arguments).graph
    return [op.type for op in graph.get_operations()].count("HcclFusedAllReduce")


def steps():
    @tf.function
    def step(scale):
        mine = [tf.constant(each) * scale for each in BASE]
        return hvd.grouped_allreduce(mine, hvd.Average), hvd.grouped_allreduce([2 * m for m in mine], hvd.Sum)

    assert fused_ops(step, tf.constant(1.0)) == 2
    for number in range(20):
        means, sums = step(tf.constant(float(RANK + number)))
        total = sum(rank + number for rank in range(SIZE))
        for base, mean, whole in zip(BASE, means, sums):
            np.testing.assert_allclose(mean, base * total / SIZE, rtol=1e-6)
            np.testing.assert_array_equal(whole, 2 * base * total)


def loops():
    @tf.function
    def loop(number):
        totals = [tf.zeros(shape) for shape in SHAPES]
        for i in tf.range(number):
            mine = [base * tf.cast(i + RANK, tf.float32) for base in BASE]
            totals = [t + r for t, r in zip(totals, hvd.grouped_allreduce(mine, hvd.Sum))]
        return totals

    want = sum(i + rank for i in range(15) for rank in range(SIZE))
    for base, total in zip(BASE, loop(tf.constant(15))):
        np.testing.assert_array_equal(total, base * want)


def types():
    """A list of gradients of each type; None stays None."""

    @tf.function
    def step():
        mine = [tf.fill([5], tf.cast(RANK + 1, t)) for t in (tf.float64, tf.bfloat16, tf.float16, tf.float64)]
        return hvd.grouped_allreduce([mine[0], None, *mine[1:]], hvd.Sum)

    assert fused_ops(step) == 3
    for _ in range(3):
        got = step()
        assert got[1] is None and [g.dtype for g in got[2:]] == [tf.bfloat16, tf.float16, tf.float64]
        for each in (got[0], *got[2:]):
            np.testing.assert_array_equal(tf.cast(each, tf.float32), np.full(5, SIZE * (SIZE + 1) / 2))


def not_fused():
    """Tensors that have no sum or no known shape take one operation each. So do the tensors of eager code."""

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def unknown(x):
        return hvd.grouped_allreduce([x, x + 1], hvd.Sum)

    np.testing.assert_array_equal(unknown(tf.ones([3]))[1], np.full(3, 2.0 * SIZE))
    greatest = tf.function(lambda: hvd.grouped_allreduce([tf.ones(2) * RANK, tf.ones(3)], hvd.Max))
    np.testing.assert_array_equal(greatest()[0], np.full(2, SIZE - 1.0))
    assert fused_ops(greatest) == 0
    np.testing.assert_array_equal(hvd.grouped_allreduce([tf.ones(2), tf.ones(3)], hvd.Sum)[0], np.full(2, SIZE))


def beside_collectives_of_backward():
    """The list does not wait for a collective within backward, as in synchronised batch norm, and the collective does
    not wait for the list."""

    @tf.custom_gradient
    def synchronised(x):
        return hvd.allreduce(x, hvd.Sum), lambda dy: hvd.allreduce(dy, hvd.Sum)

    weights = [tf.Variable(tf.ones([50, 50]) / 50) for _ in range(6)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            x = tf.ones([1, 50])
            for weight in weights:
                x = synchronised(tf.matmul(x, weight)) / SIZE
            loss = tf.reduce_sum(x)
        return hvd.grouped_allreduce(tape.gradient(loss, weights), hvd.Average)

    for _ in range(10):
        for gradient in step():
            np.testing.assert_allclose(gradient, np.ones([50, 50]), rtol=1e-5)


def gradients():
    """The gradient of a reduced list is reduced, too."""
    x, y = tf.Variable(tf.ones([3])), tf.Variable(tf.ones([2]))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            a, b = hvd.grouped_allreduce([x * 2, y * 3], hvd.Average)
            loss = tf.reduce_sum(a) + tf.reduce_sum(b)
        return tape.gradient(loss, [x, y])

    for _ in range(2):
        got = step()
        np.testing.assert_allclose(got[0], np.full(3, 2.0), rtol=1e-6)
        np.testing.assert_allclose(got[1], np.full(2, 3.0), rtol=1e-6)


def failed_steps():
    """A step that ends before its list is reduced does not disturb later steps."""

    @tf.function
    def step(x, good):
        with tf.control_dependencies([tf.debugging.assert_equal(good, True)]):
            mine = [tf.identity(x), x + 1]
        return hvd.grouped_allreduce([*mine, tf.ones([2]) * 3], hvd.Sum)

    for number in range(12):
        x = tf.fill([4], float(RANK + number))
        if number % 3 == 1:
            try:
                step(x, tf.constant(False))
                raise AssertionError("the step was to fail")
            except tf.errors.InvalidArgumentError:
                continue
        want = sum(rank + number for rank in range(SIZE))
        np.testing.assert_array_equal(step(x, tf.constant(True))[0], np.full(4, want))


def sessions():
    """TensorFlow 1's graphs: two lists, in two sessions."""
    with tf.Graph().as_default():
        v1 = tf.compat.v1
        scale = v1.placeholder(tf.float32, [])
        first = hvd.grouped_allreduce([base * scale for base in BASE], hvd.Sum)
        second = hvd.grouped_allreduce([base * (scale + 1) for base in BASE], hvd.Sum)
        config = v1.ConfigProto()
        rewrite = config.graph_options.rewrite_options
        rewrite.custom_optimizers.add().name = "NpuOptimizer"
        rewrite.custom_optimizers[0].parameter_map["hcom_parallel"].b = False
        for _ in range(2):
            with v1.Session(config=config) as session:
                for number in range(5):
                    got = session.run([second, first], {scale: RANK + number})
                    total = sum(rank + number for rank in range(SIZE))
                    np.testing.assert_array_equal(got[1][2], BASE[2] * total)
                    np.testing.assert_array_equal(got[0][2], BASE[2] * (total + SIZE))


for test in (steps, loops, types, not_fused, beside_collectives_of_backward, gradients, failed_steps, sessions):
    test()
print("all well")
