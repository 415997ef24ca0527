"""Horovod's programs in graphs of TensorFlow 1, without npu_bridge: graph.py keras|session"""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def keras():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank = hvd.rank()
    v1.disable_eager_execution()
    v1.set_random_seed(rank + 1)
    layers = [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    assert hvd.broadcast_global_variables(1) is None
    for found in hvd.allgather(np.stack([model.get_weights()[0]])):
        np.testing.assert_array_equal(found, model.get_weights()[0])
    assert hvd.allreduce(value=float(rank), name="x") == 0.5
    assert hvd.broadcast(value=rank, root_rank=1) == 1
    assert hvd.reducescatter([[1.0], [rank + 1.0]]).tolist() == [[1.0], [1.5]][rank : rank + 1]

    model.set_weights([weight + rank for weight in model.get_weights()])
    optimizer = hvd.DistributedOptimizer(optimizer=tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9))
    model.compile(optimizer, "mse", metrics=["mae"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=1, steps_per_epoch=4, verbose=1),
    ]
    x, y = np.full((8, 4), rank + 1.0, "float32"), np.ones((8, 1), "float32")
    told = model.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=callbacks).history
    np.testing.assert_allclose(told["lr"], [0.02, 0.02])

    state = hvd.elastic.KerasState(model, batch=rank)
    committed = model.get_weights()
    model.set_weights([weight + rank for weight in committed])
    state.restore()
    for found, want in zip(model.get_weights(), committed):
        np.testing.assert_array_equal(found, want)
    model.set_weights([weight + rank for weight in committed])
    state.sync()
    own = {**told, "weights": [weight.tolist() for weight in model.get_weights()], "batch": state.batch}
    print("\nsaid:", {name: np.asarray(value, object).tolist() for name, value in sorted(own.items())})


def session():
    """The table's gradient is sparse, and the other gradients have two types, so a step has several collectives."""
    v1.disable_v2_behavior()
    hvd.init()
    random = np.random.default_rng(hvd.rank())
    ids, labels = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float64, [None])
    table, hidden = v1.get_variable("table", [1000, 16]), v1.get_variable("hidden", [16, 300])
    out, bias = v1.get_variable("out", [300, 1], tf.float64), v1.get_variable("bias", [1], tf.float64)
    other = v1.get_variable("other", [1000, 16])
    looked_up = tf.nn.embedding_lookup(table, ids) + tf.nn.embedding_lookup(other, ids)
    found = tf.squeeze(tf.cast(looked_up @ hidden, tf.float64) @ out + bias, 1)
    loss = tf.reduce_mean((found - labels) ** 2)
    train = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.01)).minimize(loss)
    gathered = hvd.grouped_allgather([tf.reshape(hvd.rank() + i, [1]) for i in range(8)])
    with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as running:
        for _ in range(15):
            rows = int(random.integers(8, 40))
            running.run(train, {ids: random.integers(0, 1000, rows), labels: random.normal(size=rows)})
        assert [each.tolist() for each in running.run(gathered)] == [[i, i + 1] for i in range(8)]
        print("\nsaid:", [float(np.sum(v)) for v in running.run([table, other, hidden, out, bias])])


globals()[sys.argv[1]]()
