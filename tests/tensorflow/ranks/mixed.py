"""Trains in mixed_float16 with the same global batches on any number of ranks. In one step only the last rank's
gradients are not finite: mixed.py FILE"""

import sys

import hccl.tensorflow as hvd
import npu_device as npu
import numpy as np
import tensorflow as tf

handle = npu.open().as_default()
RANK, SIZE = handle.worker_id, handle.workers_num
STEPS, BATCH, HUGE = 6, 8, 2
KERAS_2 = not hasattr(tf.keras.optimizers.Optimizer, "apply")
tf.keras.mixed_precision.set_global_policy("mixed_float16")
numbers = np.random.default_rng(0)
x = numbers.uniform(-0.25, 0.25, (STEPS, BATCH, 4)).astype("float32")
y = x.sum(2, keepdims=True) / 2 + 0.5  # small enough for the initial scale, 2**15
x[HUGE, -1] = 60000  # float16 ends at 65504
mine = slice(RANK * BATCH // SIZE, (RANK + 1) * BATCH // SIZE)
data = tf.data.Dataset.from_tensor_slices((x[:, mine], y[:, mine]))

layers = tf.keras.layers
npu_scaling = npu.train.optimizer.NpuLossScaleOptimizer
npu_wrapper = npu.distribute.npu_distributed_keras_optimizer_wrapper
optimizers = tf.keras.optimizers
around = tf.keras.mixed_precision.LossScaleOptimizer


def new_model():
    kernels = [tf.keras.initializers.RandomUniform(-0.25, 0.25, seed=seed) for seed in (1, 2)]
    hidden, last = (layers.Dense(n, kernel_initializer=k) for n, k in zip((8, 1), kernels))
    return tf.keras.Sequential([layers.Input((4,)), hidden, last])


def fit(optimizer):
    model = new_model()
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer or not isinstance(optimizer, npu_scaling), model.optimizer
    model.fit(data, verbose=0)
    return model, model.optimizer


def loop(optimizer):
    model = new_model()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(images), tf.float32) - labels))
            loss = optimizer.get_scaled_loss(loss) if KERAS_2 else optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        if KERAS_2:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for images, labels in data:
        step(images, labels)
    return model, optimizer


ways = {
    "hvd": lambda: fit(hvd.DistributedOptimizer(optimizers.SGD(0.0625))),
    "npu": lambda: fit(npu_wrapper(optimizers.SGD(0.0625))),
    "outside": lambda: fit(hvd.DistributedOptimizer(around(optimizers.SGD(0.0625)))),
    "npu scaling": lambda: fit(npu_scaling(npu_wrapper(optimizers.SGD(0.0625)))),
    "npu scaling within": lambda: fit(npu_wrapper(npu_scaling(optimizers.SGD(0.0625)))),
    "loop": lambda: loop(around(hvd.DistributedOptimizer(optimizers.SGD(0.0625)))),
    "loop outside": lambda: loop(hvd.DistributedOptimizer(around(optimizers.SGD(0.0625)))),
}
if KERAS_2:
    ways["legacy"] = lambda: fit(hvd.DistributedOptimizer(optimizers.legacy.SGD(0.0625)))
    ways["npu scaling legacy"] = lambda: fit(npu_scaling(npu_wrapper(optimizers.legacy.SGD(0.0625))))
results = {}
for way, train in ways.items():
    model, optimizer = train()
    results[way] = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
    scale = optimizer.loss_scale if KERAS_2 else optimizer.dynamic_scale
    results[f"{way}: scale"] = np.array([float(scale), int(optimizer.iterations)])
results["start"] = np.concatenate([weight.ravel() for weight in new_model().get_weights()])
np.savez(f"{sys.argv[1]}-{RANK}.npz", **results)
