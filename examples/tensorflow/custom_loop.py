#!/usr/bin/env python3
"""A training loop in which one call makes several steps: mpirun -np 4 python
examples/tensorflow/custom_loop.py [DIRECTORY of traces]"""

import digits
import npu_device as npu

options = npu.global_options()
options.hcom_parallel = True
options.profiling_config.enable_profiling = digits.profiling_options() != ""
options.profiling_config.profiling_options = digits.profiling_options()
device = npu.open().as_default()

import tensorflow as tf
from hccl.split.api import set_split_strategy_by_idx

set_split_strategy_by_idx([1, 3])

STEPS, LOOP, BATCH = 250, 30, 60
(images, labels), test = digits.load()
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((64,)),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.SGD(0.1)
npu.distribute.broadcast(model.trainable_variables)


@tf.function
def loop_train(iterator, steps):
    for _ in tf.range(steps):
        batch_images, batch_labels = next(iterator)
        with tf.GradientTape() as tape:
            value = loss(batch_labels, model(batch_images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        gradients = npu.distribute.all_reduce(gradients, reduction="mean")
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))


dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset, batch = npu.distribute.shard_and_rebatch_dataset(dataset, BATCH)
iterator = iter(dataset.repeat().batch(batch))
done = 0
while done < STEPS:
    size = min(LOOP, STEPS - done)  # the last loop is shorter
    npu.set_npu_loop_size(size)
    loop_train(iterator, tf.constant(size))
    done += size
predicted = tf.argmax(model(test[0]), axis=1)
accuracy = tf.reduce_mean(tf.cast(predicted == test[1], tf.float32))
print(f"worker {device.worker_id} of {device.workers_num}: accuracy {accuracy:.3f}")
