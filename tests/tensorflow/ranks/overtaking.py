"""Two collectives of equal size, without names, in sessions of TensorFlow 1 without npu_bridge. Rank 0 is late with the
first one, rank 1 with the second one: without an order the ranks would add the first to the second."""

import functools
import time

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
tf.config.threading.set_inter_op_parallelism_threads(8)
hvd.init()


def reduced(value, late_rank, **factors):
    """Returns the sum of 3 times the value over the ranks. One rank is late."""

    def late(given, of):
        time.sleep(0.4 if hvd.rank() == of else 0)
        return given

    own = v1.py_func(late, [tf.fill([3], value), late_rank], tf.float32)
    own.set_shape([3])
    return hvd.allreduce(own, op=hvd.Sum, **factors)


first, second = functools.partial(reduced, 1.0, 0), functools.partial(reduced, 10.0, 1)


def plain():
    return first(), second()


def scaled():
    return first(prescale_factor=0.5), second(prescale_factor=0.5)


def branches():
    yes, zeros = v1.placeholder_with_default(True, []), tf.zeros([3])
    return tf.cond(yes, first, lambda: zeros), tf.cond(yes, second, lambda: zeros)


def branch():
    return tf.cond(v1.placeholder_with_default(True, []), plain, lambda: (tf.zeros([3]), tf.zeros([3])))


def function():
    return tf.function(first)(), second()


def copies():
    """Rank 1 calls one function more before, so the copies of `own` have the numbers 8 and 9, or 9 and 10."""
    own, noise = tf.function(reduced), tf.function(lambda: tf.random.uniform([]))
    for _ in range(8 + hvd.rank()):
        noise()
    return own(tf.constant(1.0), tf.constant(0)), own(tf.constant(10.0), tf.constant(1))


def loop():
    """The iterations do not depend on each other: the first one makes a sum of 2, the next one a sum of 20."""

    def body(i, sums):
        own = reduced(10.0 ** tf.cast(i, tf.float32), i)
        return i + 1, sums + tf.one_hot(i, 2)[:, None] * own

    return tuple(tf.unstack(tf.while_loop(lambda i, _: i < 2, body, (0, tf.zeros([2, 3])))[1]))


def ran(kind, session=v1.Session, config=None):
    with tf.Graph().as_default():
        running = session(config=config)
        values = [np.asarray(each).tolist() for each in running.run(kind())]
        running.close()
        return values


for kind in (plain, branches, branch, function, copies, loop):
    print("said:", kind.__name__, ran(kind))
soft = v1.ConfigProto(allow_soft_placement=True, inter_op_parallelism_threads=8)
print("said: interactive", ran(plain, v1.InteractiveSession, soft))
options = v1.ConfigProto(inter_op_parallelism_threads=8)
options.graph_options.rewrite_options.disable_meta_optimizer = True
without = [functools.partial(ran, kind, config=options) for kind in (plain, scaled, loop)]
for how in (*without, v1.wrap_function(plain, [])):
    hvd.shutdown()  # an error may have ended the world
    hvd.init()
    try:
        print("said:", how())
    except tf.errors.InvalidArgumentError as error:
        print("said:", error.message.replace("\n", " "))
