"""What Keras models have beside their weights, on two ranks: models.py FOLDER"""

import sys

import hccl.tensorflow as hvd
import npu_device as npu
import numpy as np
import tensorflow as tf

npu.open().as_default()
FOLDER, RANK = sys.argv[1], hvd.rank()
layers, distribute = tf.keras.layers, npu.distribute
rows = np.random.default_rng(RANK).normal(size=(8, 64)).astype("float32")  # each rank has others
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
    hvd.allreduce(1.0)  # it is saved
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


for test in (callbacks_leave_dropout_alone, a_loaded_optimizer_reduces_or_says_so):
    test()
print("all well")
