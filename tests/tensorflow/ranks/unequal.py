"""Ranks whose lists or tensors differ: unequal.py sizes|rules|skip|shapes|none|list|allreduce|broadcast FOLDER"""

import pathlib
import sys
import time

import hccl.tensorflow as hvd
import tensorflow as tf
from hccl.split.api import set_split_strategy_by_idx

HOW, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
hvd.init()
last = hvd.rank() == hvd.size() - 1
if HOW != "rules" or last:
    set_split_strategy_by_idx([0, 1])
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(5 if HOW == "sizes" and last else 4)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones([2, 3])))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


kernel = tf.Variable(tf.zeros([3, 2] if last and HOW != "none" else [2, 3]), name="kernel")
bias = tf.Variable(tf.zeros([4]), name="bias")


@tf.function
def step_of_shapes():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(kernel) + (0.0 if last and HOW == "none" else tf.reduce_sum(bias))
    hvd.DistributedGradientTape(tape).gradient(loss, [kernel, bias])


calls = {
    "shapes": step_of_shapes,
    "none": step_of_shapes,
    "list": lambda: hvd.grouped_allreduce([kernel, bias], name="kernel"),
    "allreduce": lambda: hvd.allreduce(kernel),
    "broadcast": lambda: hvd.broadcast_variables([kernel], 0),
}
try:
    calls.get(HOW, step)()
    if HOW == "skip":
        step()
        while last and len(list(FOLDER.iterdir())) < hvd.size() - 1:  # until the other ranks have failed
            time.sleep(0.05)
        step()
except tf.errors.OpError as error:
    (FOLDER / str(hvd.rank())).touch()
    print("said:", type(error).__name__, error.message.replace("\n", " "))
