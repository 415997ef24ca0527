"""Rank 1 kills itself in fit; the other ranks print the error."""

import os
import signal

import hccl.tensorflow as hvd
import tensorflow as tf

hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2)])
model.compile(hvd.DistributedOptimizer("sgd"), "mse")


class Killer(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


data = tf.data.Dataset.from_tensors((tf.ones([4, 4]), tf.ones([4, 2]))).repeat()
try:
    model.fit(data, steps_per_epoch=100000, verbose=0, callbacks=[Killer()])
except tf.errors.InternalError as error:
    print("said:", str(error).replace("\n", " "))
