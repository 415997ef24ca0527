"""Independent collectives of equal size, inside and outside of branches and loops: each must meet the same collective
of the other rank, whichever of them TensorFlow's threads run first. The power of ten in a sum shows which collective
made the sum: order.py npu_bridge|horovod"""

import sys

if sys.argv[1] == "npu_bridge":
    from npu_bridge.npu_init import *  # noqa: F403  as scripts do

    sess, npu_shutdown = init_resource()  # noqa: F405
else:  # with the conditionals and loops of TensorFlow 2
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
import hccl.tensorflow as hvd
import numpy as np

RUNS = 60
hvd.init()
rank, size = hvd.rank(), hvd.size()
yes, other, times = (tf.placeholder(each, []) for each in (tf.bool, tf.bool, tf.int32))  # noqa: F405
random = np.random.RandomState(0)  # the same on all ranks


def reduced(value):
    if sys.argv[1] == "npu_bridge":
        return hccl_ops.allreduce(value, "sum", fusion=0)  # noqa: F405
    return hvd.allreduce(value, op=hvd.Sum)


def mine(power):
    return tf.fill([4], tf.random.uniform([]) * 0.0 + 10.0**power * (rank + 1))  # noqa: F405


def total(power):
    return 10.0**power * size * (size + 1) / 2


def loop(body, begin, condition=lambda: True):
    """Returns the sum of `begin` and of body(i, sum) for each i below `times`."""
    return tf.while_loop(  # noqa: F405
        lambda i, _: tf.logical_and(i < times, condition()),  # noqa: F405
        lambda i, value: (i + 1, value + body(i, value)),
        (tf.constant(0), begin),  # noqa: F405
    )[1]


def scaled(value, i):
    return value * 10.0 ** -tf.cast(i, tf.float32)  # noqa: F405


def branches():
    def nested():
        first = reduced(mine(1))
        inner = tf.cond(other, lambda: reduced(mine(2)), lambda: mine(0) * 0)  # noqa: F405
        return first + inner + reduced(mine(3))

    before = reduced(mine(0))
    between = tf.cond(yes, nested, lambda: reduced(mine(4)) + reduced(mine(1)))  # noqa: F405
    after = reduced(mine(2))

    def expected(yes, other, times):
        taken = total(1) + other * total(2) + total(3)
        return total(0), taken if yes else total(4) + total(1), total(2)

    return (before, between, after), expected


def loops():
    """Iterations that do not depend on each other; a loop and a branch inside a loop; a collective in a condition."""

    def body(i, _):
        inner = tf.while_loop(  # noqa: F405
            lambda j, _: j < i, lambda j, s: (j + 1, s + scaled(reduced(mine(0)), j)), (0, mine(0) * 0)
        )[1]
        odd = tf.cond(tf.equal(i % 2, 1), lambda: reduced(mine(1)), lambda: mine(0) * 0)  # noqa: F405
        return inner + odd + reduced(mine(2))

    before = reduced(mine(3))
    whole = tf.cond(  # noqa: F405
        yes, lambda: loop(body, mine(0) * 0, lambda: reduced(mine(1))[0] > 2), lambda: reduced(mine(1))
    )
    last = reduced(mine(4))

    def expected(yes, other, times):
        turns = [sum(total(-j) for j in range(i)) + i % 2 * total(1) + total(2) for i in range(times)]
        return total(3), sum(turns) if yes else total(1), total(4)

    return (before, whole, last), expected


def gradients():
    """Gradients of a branch and of a loop, whose collectives TensorFlow makes."""
    x = mine(0)
    first = reduced(mine(1))
    branch = tf.cond(yes, lambda: reduced(x) * (rank + 1.0), lambda: x * 2)  # noqa: F405
    grown = loop(lambda _, value: reduced(value) - value, x)  # value := the sum of all ranks' values
    second = reduced(mine(2))
    of_branch, of_loop = tf.gradients(branch, x)[0], tf.gradients(grown * (rank + 1.0), x)[0]  # noqa: F405
    third = reduced(mine(3))

    def expected(yes, other, times):
        sums = size * (size + 1) / 2
        turned = size ** (times - 1) * sums if times else rank + 1
        branch = sums * (rank + 1) if yes else 2 * (rank + 1)
        return total(1), branch, turned, total(2), sums if yes else 2, turned, total(3)

    return (first, branch, grown, second, of_branch, of_loop, third), expected


for kind in (branches, loops, gradients):
    fetches, expected = kind()
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=8)) as session:  # noqa: F405
        for run in range(RUNS):
            given = bool(random.randint(2)), bool(random.randint(2)), random.randint(4)
            # Runs all of them or, as another graph, some of them.
            some = range(len(fetches)) if run % 2 else sorted(random.permutation(len(fetches))[:2])
            feed = dict(zip((yes, other, times), given))
            results = session.run([fetches[each] for each in some], feed)
            for each, result in zip(some, results):
                np.testing.assert_allclose(result, np.full(4, expected(*given)[each]), 1e-5, err_msg=kind.__name__)
print("all well")
