"""Measures steps per second with loops of 1 and of 100 steps, on one core. Each case has its own process.

    .venv-tf215/bin/python benchmarks/tensorflow/loops.py
"""

import os
import subprocess
import sys
import time

import numpy as np

CASES = ["2 linear dataset", "1 linear dataset", "1 mlp dataset", "1 mlp feed", "1 mlp dataset callables", "1 mlp feed callables"]
WINDOWS, SECONDS, BATCH = 4, 0.4, 32


def rate(run, steps):
    """Returns the steps per second of the fastest of several windows."""
    run()
    best = 0.0
    for _ in range(WINDOWS):
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < SECONDS:
            run()
            done += steps
        best = max(best, done / (time.perf_counter() - begin))
    return best


def rows(features, labels):
    numbers = np.random.default_rng(0)
    return [numbers.normal(size=(50 * BATCH, n)).astype("float32") for n in (features, labels)]


def tensorflow_2():
    import npu_device as npu
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    npu.open().as_default()
    weights, bias = tf.Variable(tf.zeros([8, 1])), tf.Variable(tf.zeros([1]))
    data = iter(tf.data.Dataset.from_tensor_slices(tuple(rows(8, 1))).batch(BATCH).cache().repeat())

    @tf.function
    def loop_train(iterator, steps):
        for _ in tf.range(steps):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ weights + bias - y))
            for variable, gradient in zip((weights, bias), tape.gradient(loss, (weights, bias))):
                variable.assign_sub(0.01 * gradient)

    rates = []
    for steps in (1, 100):
        npu.set_npu_loop_size(steps)
        told = tf.constant(steps)
        rates.append(rate(lambda told=told: loop_train(data, told), steps))
    return rates


def tensorflow_1(model, how, callables):
    from npu_bridge import _loops
    from npu_bridge.npu_init import tf, util

    if callables:
        _loops.made = lambda *_: None
    features, labels = (8, 1) if model == "linear" else (784, 10)
    all_x, all_y = rows(features, labels)
    if how == "dataset":
        data = tf.data.Dataset.from_tensor_slices((all_x, all_y)).batch(BATCH).cache().repeat()
        iterator = tf.data.make_initializable_iterator(data)
        (x, y), feed, begin = iterator.get_next(), {}, [iterator.initializer]
    else:
        x, y = (tf.placeholder(tf.float32, [None, n]) for n in (features, labels))
        feed, begin = {x: all_x[:BATCH], y: all_y[:BATCH]}, []

    def dense(value, name, width):
        start = tf.random_normal_initializer(0, 0.05, seed=1)
        return value @ tf.get_variable(name, [value.shape[1], width], initializer=start) + tf.get_variable(
            f"{name}_bias", [width], initializer=tf.zeros_initializer()
        )

    if model == "linear":
        loss = tf.reduce_mean(tf.square(dense(x, "one", 1) - y))
    else:
        logits = dense(tf.nn.relu(dense(x, "one", 64)), "two", 10)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(y), logits=logits))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
    threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Session(config=threads) as session:
        session.run([tf.global_variables_initializer(), *begin])
        one = rate(lambda: session.run([train, loss], feed), 1)
        loop = util.set_iteration_per_loop(session, train, 100)
        return one, rate(lambda: session.run([loop, loss], feed), 100)


if len(sys.argv) == 1:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for case in CASES:
        command = [sys.executable, __file__, *case.split()]
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        subprocess.run(command, check=True, env=quiet, stderr=subprocess.DEVNULL)
else:
    version, model, how, *rest = sys.argv[1:]
    one, many = tensorflow_2() if version == "2" else tensorflow_1(model, how, bool(rest))
    print(f"TF{' '.join(sys.argv[1:])}: {one:.0f} and {many:.0f} steps a second, ratio {many / one:.2f}")
