#!/usr/bin/env python3
"""Keras fit, in the style of scripts for Ascend: mpirun -np 4 python
examples/tensorflow/keras_fit.py [DIRECTORY of traces]"""

import digits
import npu_device as npu

options = npu.global_options()
options.hcom_parallel = True
options.profiling_config.enable_profiling = digits.profiling_options() != ""
options.profiling_config.profiling_options = digits.profiling_options()
device = npu.open().as_default()

import tensorflow as tf
from hccl.split.api import set_split_strategy_by_size

set_split_strategy_by_size([60, 40])

BATCH = 60  # all workers together
(images, labels), test = digits.load()
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((64,)),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
npu.distribute.broadcast(model.trainable_variables)
optimizer = npu.distribute.npu_distributed_keras_optimizer_wrapper(
    tf.keras.optimizers.SGD(0.1, momentum=0.9)
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset, batch = npu.distribute.shard_and_rebatch_dataset(dataset, BATCH)
model.fit(dataset.batch(batch), epochs=10, verbose=2 if device.worker_id == 0 else 0)
accuracy = model.evaluate(*test, verbose=0)[1]
print(f"worker {device.worker_id} of {device.workers_num}: accuracy {accuracy:.3f}")
