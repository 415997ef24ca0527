"""Weight-update sharding, NPUStrategy and Keras as an Estimator, on several ranks."""

from npu_bridge.npu_init import *  # noqa: F403  as scripts do

import sys
import tempfile
import time

import numpy as np

rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405


START = [np.arange(n, dtype="float32") for n in (3, 5, 7, 2)]


def trained(shards):
    """Returns (variables, step, loss, optimizer); the loss is the ranks' mean of rank + 1 times the squares."""
    variables = [tf.get_variable(f"v{i}", initializer=s) for i, s in enumerate(START)]  # noqa: F405
    loss = tf.add_n([tf.reduce_sum(v * v) * (rank + 1) for v in variables])  # noqa: F405
    optimizer = NPUDistributedOptimizer(  # noqa: F405
        tf.train.MomentumOptimizer(0.01, 0.9), is_weight_update_sharding=shards  # noqa: F405
    )
    step = optimizer.minimize(loss, tf.train.get_or_create_global_step(), var_list=variables)  # noqa: F405
    return variables, step, loss, optimizer


def check(values, steps):
    for value, weight in zip(values, START):
        momentum = np.zeros_like(weight)
        for _ in range(steps):
            momentum = 0.9 * momentum + weight * 2 * (size + 1) / 2
            weight = weight - 0.01 * momentum
        np.testing.assert_allclose(value, weight, rtol=1e-5)


def sharded():
    """Weights are the same as without shards; each rank has the state of its own share, and its own checkpoint."""
    path = f"{sys.argv[1]}/own{rank}"
    for begin, end in ((0, 3), (3, 5)):
        tf.reset_default_graph()  # noqa: F405
        variables, step, _, optimizer = trained(True)
        slots = [optimizer.get_slot(v, "momentum") is not None for v in variables]
        assert 0 < sum(slots) < len(variables), slots
        with tf.Session() as sess:  # noqa: F405
            sess.run(tf.global_variables_initializer())  # noqa: F405
            if begin:
                tf.train.Saver().restore(sess, path)  # noqa: F405
            for _ in range(begin, end):
                sess.run(step)
            tf.train.Saver().save(sess, path)  # noqa: F405
            check(sess.run(variables), end)


def estimators():
    """State in shares with one model_dir, then a strategy; both continue to train from a checkpoint."""

    def model_fn(features, labels, mode):
        variables, step, loss, _ = trained(shards)
        return NPUEstimatorSpec(mode, loss=loss, train_op=step)  # noqa: F405

    def nothing():
        return tf.data.Dataset.from_tensors(tf.zeros([1])).repeat()  # noqa: F405

    for shards, given in ((True, None), (False, npu_strategy.NPUStrategy())):  # noqa: F405
        for steps in (4, 8):
            config = NPURunConfig(iterations_per_loop=2, save_checkpoints_steps=4, train_distribute=given)  # noqa: F405
            assert config.train_distribute is given
            estimator = NPUEstimator(model_fn, f"{sys.argv[1]}/{shards}", config)  # noqa: F405
            estimator.train(nothing, max_steps=steps)
            check([estimator.get_variable_value(f"v{i}") for i in range(len(START))], steps)


def strategy():
    made = npu_strategy.NPUStrategy()  # noqa: F405
    assert made.num_replicas_in_sync == size
    data = made.experimental_distribute_dataset(tf.data.Dataset.range(10))  # noqa: F405
    following = tf.data.make_one_shot_iterator(data).get_next()  # noqa: F405
    with tf.Session() as sess:  # noqa: F405
        assert [sess.run(following) for _ in range(2)] == [rank, rank + size]


def keras():
    tf.set_random_seed(rank)  # the broadcast makes the ranks alike
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])  # noqa: F405
    optimizer = npu_distributed_optimizer_wrapper(tf.keras.optimizers.SGD(0.1))  # noqa: F405
    model.compile(optimizer=optimizer, loss="mse")
    data = np.random.RandomState(rank).randn(64, 4).astype("float32")
    config = NPURunConfig(iterations_per_loop=4, save_checkpoints_steps=8)  # noqa: F405
    estimator = keras_to_npu.model_to_npu_estimator(  # noqa: F405
        keras_model=model, model_dir=tempfile.mkdtemp(), config=config
    )

    def feed():
        pairs = tf.data.Dataset.from_tensor_slices((data, data.sum(1, keepdims=True)))  # noqa: F405
        return pairs.repeat().batch(8)

    estimator.train(feed, max_steps=8)
    assert estimator.get_variable_value("global_step") == 8
    names = [n for n in estimator.get_variable_names() if "kernel" in n and "momentum" not in n.lower()]
    kernel = tf.constant(estimator.get_variable_value(names[0]))  # noqa: F405
    with tf.Session() as sess:  # noqa: F405
        alike = sess.run(hccl_ops.allgather(kernel, size))  # noqa: F405
    for other in np.split(alike, size)[1:]:
        np.testing.assert_array_equal(other, np.split(alike, size)[0])


def keras_begins_with_the_weights_of_rank_0():
    weights = tf.keras.initializers.Constant(rank + 1.0)  # noqa: F405
    model = tf.keras.Sequential([tf.keras.layers.Dense(300, input_shape=(300,), kernel_initializer=weights)])  # noqa: F405
    model.compile(npu_distributed_optimizer_wrapper(tf.keras.optimizers.SGD(0.0)), loss="mse")  # noqa: F405
    time.sleep((size - 1 - rank) / 2)  # Keras keeps files that are there already
    shared = f"{sys.argv[1]}/keras"
    estimator = keras_to_npu.model_to_npu_estimator(model, model_dir=shared, config=NPURunConfig())  # noqa: F405
    ones = np.ones((4, 300), "float32")
    estimator.train(lambda: tf.data.Dataset.from_tensors((ones, ones)).repeat(), steps=1)  # noqa: F405
    kernel = next(n for n in estimator.get_variable_names() if n.endswith("kernel"))
    assert (estimator.get_variable_value(kernel) == 1).all(), estimator.get_variable_value(kernel)


ESTIMATORS = [estimators, keras, keras_begins_with_the_weights_of_rank_0]
for test in (sharded, strategy, *(ESTIMATORS if tf.__version__ < "2.16" else [])):  # noqa: F405
    tf.reset_default_graph()  # noqa: F405
    test()
print("all well")
