"""Trains one model with the same global batch on any number of ranks: train.py fit|loop|plain FILE"""

import sys

import npu_device as npu
import numpy as np
import tensorflow as tf

HOW, FILE = sys.argv[1:]
if HOW == "plain":
    import hccl.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
else:
    handle = npu.open().as_default()
    rank, size = handle.worker_id, handle.workers_num
tf.keras.utils.set_random_seed(1 + rank)
numbers = np.random.default_rng(0)
x = numbers.normal(size=(128, 8, 8, 1)).astype("float32")
y = numbers.integers(0, 10, 128)
layers = tf.keras.layers
model = tf.keras.Sequential(
    [
        layers.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(10),
    ]
)
optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
data, batch = tf.data.Dataset.from_tensor_slices((x, y)), 32
if HOW == "plain":
    data, batch = data.shard(size, rank), batch // size
    model.compile(hvd.DistributedOptimizer(optimizer), loss)
    hvd.broadcast_variables(model.variables)
    seen = hvd.MetricAverageCallback()
    history = model.fit(data.batch(batch), epochs=3, verbose=0, callbacks=[seen])
else:
    data, batch = npu.distribute.shard_and_rebatch_dataset(data, batch)
    npu.distribute.broadcast(model.variables)
if HOW == "fit":
    model.compile(npu.distribute.npu_distributed_keras_optimizer_wrapper(optimizer), loss)
    model.fit(data.batch(batch), epochs=3, verbose=0)
elif HOW == "loop":

    @tf.function
    def loop_train(iterator, steps):
        for _ in tf.range(steps):
            images, labels = next(iterator)
            with tf.GradientTape() as tape:
                value = loss(labels, model(images, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            gradients = npu.distribute.all_reduce(gradients, reduction="mean")
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    npu.set_npu_loop_size(6)
    iterator = iter(data.batch(batch).repeat())
    for _ in range(2):
        loop_train(iterator, tf.constant(6))
np.save(f"{FILE}-{rank}.npy", np.concatenate([v.numpy().ravel() for v in model.variables]))
