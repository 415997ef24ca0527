"""The state of Keras models besides their weights, on two ranks: models.py FOLDER"""

import sys

import hccl.tensorflow as hvd
import npu_device as npu
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
npu.open().as_default()
FOLDER, RANK = sys.argv[1], hvd.rank()
layers, distribute = tf.keras.layers, npu.distribute
rows = np.random.default_rng(RANK).normal(size=(8, 64)).astype("float32")  # each rank has other rows
labels = rows.sum(1, keepdims=True)


def of_all(tensor):
    return hvd.allgather(tf.convert_to_tensor(tensor)[None]).numpy()


def same(tensors):
    return all((each == each[0]).all() for each in map(of_all, tensors))


def new_model(*hidden):
    tf.keras.utils.set_random_seed(100 + RANK)
    return tf.keras.Sequential([layers.Input((64,)), *hidden, layers.Dense(1)])


def callbacks_leave_dropout_alone():
    for callback in (hvd.BroadcastGlobalVariablesCallback(0), distribute.NPUBroadcastGlobalVariablesCallback(0)):
        model = new_model(layers.Dropout(0.5))
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam()), "mse", metrics=["mae"])
        model.fit(rows, labels, verbose=0, callbacks=[callback])
        assert same(model.trainable_weights)
        mask = of_all(tf.cast(model.layers[0](tf.ones([1, 64]), training=True) != 0, tf.int32))
        assert (mask[0] != mask[1]).any(), callback


def a_loaded_optimizer_reduces_or_says_so():
    path = f"{FOLDER}/model.keras"
    model = new_model()
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam()), "mse")
    model.fit(rows, labels, verbose=0, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])
    if RANK == 0:
        model.save(path)
    hvd.allreduce(1.0)  # waits until rank 0 has saved the model
    loaded = tf.keras.models.load_model(path)
    copied = type(model.optimizer).from_config(model.optimizer.get_config())
    for train in (
        lambda: loaded.fit(rows, labels, verbose=0),
        lambda: copied.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))]),
    ):
        try:
            train()
        except RuntimeError as error:
            assert "with hccl.tensorflow.load_model" in str(error), error
        else:
            raise AssertionError("each rank trains alone")
    loaded.optimizer = distribute.npu_distributed_keras_optimizer_wrapper(loaded.optimizer)
    for again in (loaded, hvd.load_model(path)):
        assert int(again.optimizer.iterations) == 1
        again.fit(rows, labels, verbose=0)
        assert int(again.optimizer.iterations) == 2 and same(again.weights)


def replicas_in_a_rank_are_reduced():
    """The scaled loss makes nested calls in other threads."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for scaled in (False, True):
        with strategy.scope():
            kernel = layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = tf.keras.Sequential([layers.Input((64,)), kernel])
            optimizer = tf.keras.optimizers.SGD(0.01)
            optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Sum)
            if scaled:
                optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=8.0)
            model.compile(optimizer, "mse")
        model.fit(rows, labels, batch_size=8, verbose=0)
        gradients = of_all(-2 * rows.T @ labels / len(rows))
        np.testing.assert_allclose(model.get_weights()[0], -0.01 * gradients.sum(0), rtol=1e-4, atol=1e-5, err_msg=f"{scaled=}")


for test in (callbacks_leave_dropout_alone, a_loaded_optimizer_reduces_or_says_so, replicas_in_a_rank_are_reduced):
    test()
print("all well")
