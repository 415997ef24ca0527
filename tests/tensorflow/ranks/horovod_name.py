"""Programs in the form of Horovod's examples. argv: the program, and a folder for checkpoints."""

import hashlib
import os
import sys

import horovod
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def tell(accuracy, weights):
    digest = hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in weights)).hexdigest()
    print(f"\nsaid: {float(accuracy):.3f} {digest}", flush=True)


def data():
    made = np.load(os.path.expanduser("~/.keras/datasets/mnist.npz"))  # Keras would check a digest
    x, test = ((made[f"x_{part}"][..., None] / 255.0).astype("float32") for part in ("train", "test"))
    return x, made["y_train"].astype("int64"), (test, made["y_test"])


def network():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [layers.Input((28, 28, 1)), layers.Flatten(), layers.Dense(16, activation="relu"), layers.Dense(10)]
    )


def custom_loop(folder):
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices("GPU")
    assert not gpus
    x, y, test = data()
    tf.random.set_seed(hvd.rank())
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(1000, seed=hvd.rank()).batch(32)
    model, optimizer = network(), tf.optimizers.Adam(0.005 * hvd.size())
    loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def training_step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    for batch, (images, labels) in enumerate(dataset.take(120 // hvd.size())):
        training_step(images, labels)
        if batch == 0:
            variables = optimizer.variables
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
    if hvd.rank() == 0:
        tf.train.Checkpoint(model=model).save(os.path.join(folder, "checkpoint"))
    accuracy = np.mean(np.argmax(model(test[0]), 1) == test[1])
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=hvd.rank())
    committed = model.get_weights()

    @hvd.elastic.run
    def fails(state):
        assert state.batch == 0
        state.batch = 7
        state.commit()
        training_step(x[:32], y[:32])
        raise tf.errors.InternalError(None, None, "rank 1 died")

    try:
        fails(state)
    except tf.errors.InternalError:
        assert state.batch == 7
    for found, want in zip(model.get_weights(), committed):
        np.testing.assert_array_equal(found, want)
    tell(accuracy, model.get_weights())


def keras_fit(folder):
    import horovod.tensorflow.keras as hvd

    hvd.init()
    x, y, test = data()
    tf.random.set_seed(hvd.rank())
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(1000).batch(32)
    rate = 0.005 * hvd.size()
    optimizer = hvd.DistributedOptimizer(
        tf.optimizers.Adam(rate), backward_passes_per_step=1, average_aggregated_gradients=True
    )
    model = network()
    loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=optimizer, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=1),
    ]
    if hvd.rank() == 0:
        path = os.path.join(folder, "checkpoint-{epoch}.weights.h5")
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
    model.fit(dataset, steps_per_epoch=20, callbacks=callbacks, epochs=3, verbose=2 if hvd.rank() == 0 else 0)
    tell(model.evaluate(*test, verbose=0)[1], model.get_weights())


def session(folder):
    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    hvd.init()
    x, y, test = data()
    x = x.reshape(-1, 784)
    image, label = v1.placeholder(tf.float32, [None, 784]), v1.placeholder(tf.int64, [None])
    start = np.random.default_rng(hvd.rank()).normal(0, 0.05, (784, 10)).astype("float32")
    w, b = v1.get_variable("w", initializer=start), v1.get_variable("b", [10], initializer=v1.zeros_initializer())
    logits = tf.matmul(image, w) + b
    loss = v1.losses.sparse_softmax_cross_entropy(label, logits)
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.005 * hvd.size()), op=hvd.Average)
    step = v1.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=step)
    with tf.control_dependencies([train]):
        after = [tf.identity(w), tf.identity(b)]
    hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=120 // hvd.size())]
    random = np.random.default_rng(10 + hvd.rank())
    with v1.train.MonitoredTrainingSession(checkpoint_dir=folder if hvd.rank() == 0 else None, hooks=hooks) as running:
        while not running.should_stop():
            rows = random.integers(0, len(x), 32)
            last = running.run(after, {image: x[rows], label: y[rows]})
    found = np.argmax(test[0].reshape(-1, 784) @ last[0] + last[1], 1)
    tell(np.mean(found == test[1]), last)


def order(_):
    import horovod.keras as old
    import horovod.tensorflow.keras as hvd_keras
    from horovod.tensorflow.keras.callbacks import MetricAverageCallback

    hvd.init()
    ranks = tf.constant(float(hvd.rank()))
    assert hvd.allreduce(ranks, False).numpy() == 1 and hvd.allreduce(ranks, None, "", "").numpy() == 0.5
    assert hvd_keras.allreduce(ranks, "named", False).numpy() == 1
    assert hvd.grouped_allreduce([ranks], False, "", "")[0].numpy() == 1
    assert hvd.reducescatter(tf.ones([2]), "", hvd.Compression.none, hvd.Sum).numpy().tolist() == [2]
    assert hvd.grouped_reducescatter([tf.ones([2])], "", hvd.Compression.none, hvd.Sum)[0].numpy().tolist() == [2]
    assert hvd.broadcast_object_fn(1)(hvd.rank()) == 1
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), "mine", "", "")
    variable, one = tf.Variable(0.0), tf.Variable(0.0)
    optimizer.apply_gradients([(ranks, variable)])
    assert variable.numpy() == -0.5
    with tf.GradientTape() as tape:
        loss = (ranks + 1) * one
    tape = hvd.DistributedGradientTape(tape, "", "", hvd.Compression.none, False, hvd.Sum)
    assert tape.gradient(loss, one).numpy() == 3
    assert hvd.allreduce(tensor=ranks).numpy() == hvd_keras.allreduce(value=ranks).numpy() == 0.5
    for module in (hvd, hvd_keras):
        assert module.DistributedOptimizer(optimizer=tf.keras.optimizers.SGD()) is not None
    assert hvd.DistributedGradientTape(gradtape=tf.GradientTape()) is not None
    for call, word in ((lambda: hvd_keras.load_model(filepath="absent.keras"), "absent"), (hvd.allreduce, "tensor")):
        try:
            call()
        except (OSError, TypeError, ValueError) as error:
            assert word in str(error), error
        else:
            raise AssertionError(word)
    assert old.callbacks.MetricAverageCallback is MetricAverageCallback
    calls = {
        "SyncBatchNormalization": lambda: hvd.SyncBatchNormalization(),
        "CommitStateCallback": lambda: hvd_keras.elastic.CommitStateCallback(None),
        "horovod.run": lambda: horovod.run(order, np=2),
    }
    for word, call in calls.items():
        try:
            call()
        except NotImplementedError as error:
            assert word in str(error)
        else:
            raise AssertionError(word)
    print("all well")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)
