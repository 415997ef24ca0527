"""Classification in the form of Swin's for TensorFlow 2: a split strategy, a strategy's scope, fit on shards."""

import sys

import tensorflow as tf
from hccl.split.api import set_split_strategy_by_size

set_split_strategy_by_size([20, 20, 20, 20, 20])

import npu_device
import numpy as np
from made import LABELS, ROWS, tell

npu_device.global_options().hcom_parallel = True
npu = npu_device.open(0).as_default()
try:
    tpu = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
    strategy = tf.distribute.TPUStrategy(tpu)
except ValueError:
    strategy = tf.distribute.get_strategy()
BATCH_SIZE = 8 * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((ROWS.reshape(-1, 6), LABELS.ravel()))
data, batch = npu_device.distribute.shard_and_rebatch_dataset(data, BATCH_SIZE)
data = data.cache().repeat(3).batch(batch, drop_remainder=True).prefetch(tf.data.experimental.AUTOTUNE)


class Attention(tf.keras.layers.Layer):
    def build(self, shape):
        start = tf.keras.initializers.RandomUniform(-0.5, 0.5, seed=7)
        self.qkv = self.add_weight(shape=(6, 3), initializer=start, name="qkv")

    def call(self, rows):
        query, key, value = tf.unstack(rows[:, :, None] * self.qkv, axis=-1)
        scores = tf.nn.softmax(query[:, :, None] * key[:, None], axis=-1)
        return rows + tf.squeeze(scores @ value[:, :, None], -1)


class Keep(tf.keras.callbacks.Callback):
    losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


with strategy.scope():
    kernels = [tf.keras.initializers.RandomUniform(-0.5, 0.5, seed=seed) for seed in (1, 2)]
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input([6]), Attention(), layers.LayerNormalization(axis=-1)])
    model.add(layers.Dense(8, activation=npu_device.ops.gelu, kernel_initializer=kernels[0]))
    model.add(layers.Dense(2, activation="softmax", kernel_initializer=kernels[1]))
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.05, epsilon=1e-8)
    optimizer = npu_device.distribute.npu_distributed_keras_optimizer_wrapper(optimizer)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
npu_device.distribute.broadcast(model.trainable_variables, root_rank=0)
callbacks = [
    tf.keras.callbacks.ModelCheckpoint(f"{sys.argv[1]}/{npu.worker_id}.weights.h5", save_weights_only=True),
    *npu_device.distribute.npu_callbacks_append([Keep()]),
]
model.fit(data, callbacks=callbacks, verbose=0)
mean = npu_device.distribute.all_reduce(tf.constant(np.array(Keep.losses, "float32")), "mean")
tell(mean.numpy(), model.get_weights())
