"""Horovod's names and keywords on two ranks, against NumPy."""

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
keras = tf.keras
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(SIZE, 8, 3)).astype("float32")  # each rank's rows
Y = RANDOM.normal(size=(SIZE, 8, 1)).astype("float32")


def gradient(w, start, stop):
    """Returns the gradient of the mean squared error in these rows, as a mean over all ranks."""
    x, y = X[:, start:stop], Y[:, start:stop]
    return np.mean([2 * a.T @ (a @ w - b) / len(a) for a, b in zip(x, y)], axis=0)


def linear():
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])


def sgds():
    yield keras.optimizers.SGD
    if tf.__version__.startswith("2.15"):  # Keras 2
        yield keras.optimizers.legacy.SGD


class Rates(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates, self.logged = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate.numpy()))

    def on_epoch_end(self, epoch, logs=None):
        self.logged.append(logs["lr"])


def learning_rates():
    """Two epochs of warmup; then the rate is halved in each epoch; in the sixth it is a function of the batch."""
    lr, steps, seen = 0.08, 2, Rates()
    want = [lr / SIZE * ((SIZE - 1) / 2 * (i + 1) / steps + 1) for i in range(2 * steps)]
    want += [lr] * steps + [lr / 2] * steps + [lr / 4] * steps + [lr / 10 * 5.0, lr / 10 * 5.5]
    for kind in sgds():
        for corrects in (True, False):
            seen, model = Rates(), linear()
            model.compile(hvd.DistributedOptimizer(kind(0.01, momentum=0.9)), "mse")
            options = dict(momentum_correction=corrects)
            callbacks = [
                hvd.callbacks.LearningRateWarmupCallback(lr, warmup_epochs=2, verbose=1, **options),
                hvd.LearningRateScheduleCallback(lr, 0.5, start_epoch=2, end_epoch=5, **options),
                hvd.LearningRateScheduleCallback(
                    lr, lambda epoch: epoch / 10, start_epoch=5, staircase=False, steps_per_epoch=steps, **options
                ),
                seen,
            ]
            model.fit(X[RANK], Y[RANK], 4, epochs=6, shuffle=False, verbose=0, callbacks=callbacks)
            np.testing.assert_allclose(seen.rates, want, rtol=1e-5)
            np.testing.assert_allclose(seen.logged, want[1::steps], rtol=1e-5)
            w, moved, before = np.zeros((3, 1)), np.zeros((3, 1)), 0.01
            for i, rate in enumerate(want):
                momentum = 0.9 * (rate / before if corrects else 1)
                moved = momentum * moved - rate * gradient(w, *[(0, 4), (4, 8)][i % 2])
                w, before = w + moved, rate
            np.testing.assert_allclose(model.get_weights()[0], w, rtol=1e-4)


def accumulated(kind, how, average):
    optimizer = hvd.DistributedOptimizer(
        kind(0.1), backward_passes_per_step=3, average_aggregated_gradients=average
    )
    model = linear()
    if how == "fit":
        model.compile(optimizer, "mse")
        model.fit(X[RANK], Y[RANK], 1, shuffle=False, verbose=0)
    else:
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

        step = tf.function(step) if how == "function" else step
        for i in range(8):
            step(X[RANK, i : i + 1], Y[RANK, i : i + 1])
    assert int(optimizer.iterations.numpy()) == 8  # Horovod counts each backward pass
    w = np.zeros((3, 1))
    for first in (0, 3):  # the last two make no step
        w = w - 0.1 * sum(gradient(w, i, i + 1) for i in range(first, first + 3)) / (3 if average else 1)
    np.testing.assert_allclose(model.get_weights()[0], w, rtol=1e-4)


def accumulation():
    for kind in sgds():
        for how in ("fit", "function", "eager"):
            accumulated(kind, how, average=how != "function")
    sparse, table = hvd.DistributedOptimizer("sgd", backward_passes_per_step=2), tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(tf.gather(table, [1]))
    slices = tape.gradient(value, table)
    refused("sparse_as_dense", lambda: sparse.apply_gradients([(slices, table)]))


def compression():
    for how, kind in ((hvd.Compression.fp16, np.float16), (hvd.Compression.bf16, tf.bfloat16.as_numpy_dtype)):
        parts = [np.array([(rank + 1) / 7], "float32") for rank in range(SIZE)]
        want = (np.add(*[part.astype(kind) for part in parts]) / kind(2)).astype("float32")
        with tf.GradientTape() as tape:
            tape.watch(x := tf.zeros([1]))
            y = x * parts[RANK]
        found = hvd.allreduce(tf.constant(parts[RANK]), compression=how)
        (same,) = hvd.DistributedGradientTape(tape, compression=how).gradient(y, [x])
        assert found.dtype == tf.float32 and want != np.mean(parts)
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(same, want)
        assert hvd.allreduce(tf.constant([2**20 + 1]), hvd.Sum, compression=how).numpy() == SIZE * (2**20 + 1)


def collectives():
    factors = dict(prescale_factor=0.5, postscale_factor=3.0)
    np.testing.assert_allclose(hvd.allreduce(tf.constant(RANK + 1.0), average=False, **factors), 1.5 * 3)
    assert hvd.allreduce(tf.constant(2 * RANK + 2), hvd.Sum, **factors).numpy() == 9
    sums = hvd.grouped_allreduce([tf.constant(RANK), tf.constant([1.0])], hvd.Sum, name="list")
    assert [each.numpy().tolist() for each in sums] == [1, [2.0]]
    slices = hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([RANK]), [2, 2]), hvd.Sum)
    assert isinstance(slices, tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(slices), np.ones((2, 2)))
    for dtype in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"):
        rows = [np.array([[rank]] * (rank + 1), dtype) for rank in range(SIZE)]
        (found,) = hvd.grouped_allgather([tf.constant(rows[RANK])])
        np.testing.assert_array_equal(found, np.concatenate(rows))
        assert hvd.alltoall(tf.constant(np.repeat(rows[RANK][:1], SIZE, 0))).numpy().ravel().tolist() == [0, 1]
    for count in (1, 2, 5):  # the first rank may have one row more
        whole = np.arange(2.0 * count).reshape(count, 2)
        parts = np.array_split(whole, SIZE)
        (found,) = hvd.grouped_reducescatter([tf.constant(whole)], hvd.Sum)
        np.testing.assert_array_equal(found, SIZE * parts[RANK])
        np.testing.assert_array_equal(hvd.reducescatter(tf.constant(whole) * (RANK + 1)), 1.5 * parts[RANK])
    assert hvd.broadcast_object({"rank": RANK}, 1) == {"rank": 1}
    assert hvd.allgather_object("x" * RANK) == ["", "x"]
    only = hvd.add_process_set([1])
    assert (only.size(), only.included(), only.rank()) == (1, RANK == 1, [None, 0][RANK])
    if RANK == 1:
        assert hvd.allreduce(tf.constant(5.0), hvd.Sum, process_set=only).numpy() == 5
        assert hvd.broadcast(tf.constant(5.0), 1, process_set=only).numpy() == 5
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant([RANK + 1.0]))
        y = x * 2.0
    (own,) = hvd.DistributedGradientTape(tape, hvd.Sum, process_set=only).gradient(y, [x])
    assert own.numpy().tolist() == [2.0]


def gradients_of_collectives():
    splits = [[1, 2], [0, 3]][RANK]

    def of_alltoall(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows, received = hvd.alltoall(x, splits)
            loss = tf.reduce_sum(rows) * (RANK + 1.0)
        return rows, received, tape.gradient(loss, x)

    x = tf.constant(np.arange(6.0).reshape(3, 2) + 10 * RANK)
    for how in (of_alltoall, tf.function(of_alltoall)):
        rows, received, found = how(x)
        np.testing.assert_array_equal(rows, [[[0, 1]], [[2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]][RANK])
        assert received.dtype == tf.int32 and received.numpy().tolist() == [[1, 0], [2, 3]][RANK]
        np.testing.assert_array_equal(found[:, 0], [[1, 2, 2], [2, 2, 2]][RANK])
    for op, factor in ((hvd.Sum, SIZE), (hvd.Average, 1)):  # as in Horovod
        with tf.GradientTape() as tape:
            tape.watch(x := tf.ones([3, 1]))
            loss = tf.reduce_sum(hvd.reducescatter(x, op)) * (RANK + 1.0)
        np.testing.assert_array_equal(tape.gradient(loss, x), factor * np.array([[1], [1], [2]]))


def sessions():
    with tf.Graph().as_default():
        v1 = tf.compat.v1
        w = v1.get_variable("w", initializer=np.full((3, 1), RANK + 1.0, "float32"))
        count = v1.get_variable("count", initializer=RANK + 7, trainable=False)
        loss = tf.reduce_mean((X[RANK] @ w - Y[RANK]) ** 2)
        train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
        with v1.train.SingularMonitoredSession([hvd.BroadcastGlobalVariablesHook(1)]) as session:
            assert session.run(count) == 8
            for _ in range(2):
                session.run(train)
            found = session.run(w)
        assert hvd.broadcast_object(RANK, 1, session=session) == 1
    want = np.full((3, 1), 2.0)
    for _ in range(2):
        want = want - 0.1 * gradient(want, 0, 8)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    try:
        hvd.broadcast_global_variables(0)
    except RuntimeError as error:
        assert "broadcast_variables" in str(error)
    else:
        raise AssertionError("eager code has no global variables")


def metrics():
    logs = {"loss": RANK + 1.0, "each": np.array([RANK, 4.0 * RANK], "float32"), "last": tf.constant(RANK)}
    hvd.MetricAverageCallback().on_epoch_end(0, logs)
    assert logs["loss"] == 1.5 and logs["last"] == 0.5 and type(logs["loss"]) is float
    np.testing.assert_array_equal(logs["each"], [0.5, 2.0])


def refused(keyword, call):
    try:
        call()
    except (NotImplementedError, ValueError) as error:
        assert keyword in str(error), error
        return
    raise AssertionError(f"{keyword} was not refused")


def keywords():
    """All keywords accept Horovod's defaults. Other values are refused, and the error names the keyword."""
    everywhere = dict(name=None, process_set=hvd.global_process_set)
    scope = dict(everywhere, ignore_name_scope=False)
    factors = dict(compression=hvd.Compression.none, prescale_factor=1.0, postscale_factor=1.0, device_dense="")
    reduce = dict(scope, **factors, average=None, device_sparse="", op=None)
    one = tf.constant([1.0, 3.0])
    for found in (
        *(hvd.allreduce(one, **reduce), hvd.grouped_allreduce([one], **reduce)[0]),
        *(hvd.allgather(one[RANK : RANK + 1], **scope), hvd.grouped_allgather([one[RANK : RANK + 1]], **scope)[0]),
        *(hvd.broadcast(one, 0, **scope), hvd.allgather(hvd.reducescatter(one, op=hvd.Average, **scope, **factors))),
        hvd.alltoall(hvd.alltoall(one, splits=None, **scope)),
    ):
        np.testing.assert_array_equal(found, [1.0, 3.0])
    tape = dict(device_dense="", device_sparse="", compression=hvd.Compression.none, sparse_as_dense=False, op=hvd.Average)
    tape |= dict(gradient_predivide_factor=1.0, num_groups=0, groups=None, scale_local_gradients=True)
    optimizer = dict(tape, **everywhere, backward_passes_per_step=1, average_aggregated_gradients=False)
    hvd.DistributedOptimizer(keras.optimizers.SGD(), **optimizer)
    session = tf.compat.v1.train.GradientDescentOptimizer
    hvd.DistributedOptimizer(session(0.1), **optimizer, use_locking=False)
    hvd.BroadcastGlobalVariablesCallback(root_rank=0, device="", local_variables=None)
    hvd.MetricAverageCallback(device="")
    with tf.GradientTape() as own:
        own.watch(one)
        value = one * one * (RANK + 1.0)
    own = hvd.DistributedGradientTape(gradtape=own, **{**tape, "gradient_predivide_factor": 4.0, "groups": 2})
    np.testing.assert_allclose(own.gradient(value, [one], use_generic_names=True)[0], [3.0, 9.0])
    for keyword, value in (
        *(("device_dense", "/gpu:0"), ("device_sparse", "/gpu:1"), ("op", hvd.Adasum), ("scale_local_gradients", False)),
        *(("backward_passes_per_step", 0), ("use_locking", True), ("groups", -1)),
    ):
        refused(keyword, lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), **{keyword: value}))
    refused("gradient_predivide_factor", lambda: hvd.DistributedOptimizer("sgd", hvd.Sum, gradient_predivide_factor=2.0))
    refused("backward_passes_per_step", lambda: hvd.DistributedOptimizer(session(0.1), backward_passes_per_step=2))
    refused("average", lambda: hvd.allreduce(one, op=hvd.Sum, average=True))
    refused("comm", lambda: hvd.init(comm=[0]))
    for name in ("cross_rank", "cross_size", "is_homogeneous"):
        refused(f"{name} is not there", getattr(hvd, name))
    for rows, splits in ((3, None), (1, [1, 1])):
        try:
            hvd.alltoall(tf.ones([rows]), splits)
        except tf.errors.InvalidArgumentError as error:
            assert "rows" in str(error)
        else:
            raise AssertionError("alltoall")


def joins():
    """With equal numbers of steps join() is a barrier; otherwise all ranks get an error."""
    assert hvd.join() == SIZE - 1 and int(tf.function(hvd.join)()) == SIZE - 1
    try:
        for _ in range(3 + RANK):
            hvd.allreduce(tf.ones([3]), name="loss")
        hvd.join()
    except tf.errors.InvalidArgumentError as error:
        expected = ['named "loss"'] if RANK == 1 else ["hvd.join", "the same number of steps on all ranks"]
        assert all(each in str(error) for each in expected), error
    else:
        raise AssertionError("join() after different numbers of steps")


checks = (learning_rates, accumulation, compression, collectives, gradients_of_collectives)
for check in (*checks, sessions, metrics, keywords, joins):  # joins() ends the group
    check()
hvd.shutdown()
print("all well")
