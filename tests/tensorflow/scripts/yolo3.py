"""Detection in the form of YOLOv3's for TensorFlow 2: options of an NPU, a tape, all_reduce of the gradients."""

import argparse
import ast

import npu_device
import numpy as np
import tensorflow as tf
from made import ROWS, share, tell

parser = argparse.ArgumentParser()
parser.add_argument("--precision_mode", type=str, default="allow_mix_precision")
parser.add_argument("--use_mixlist", type=ast.literal_eval, default=True)
args, unknown_args = parser.parse_known_args()

npu_device.global_options().dump_config.enable_dump_debug = True
npu_device.global_options().dump_config.dump_path = "/home/data"
npu_device.global_options().dump_config.dump_debug_mode = "all"
npu_device.global_options().precision_mode = args.precision_mode
npu_device.global_options().variable_memory_max_size = str("4*1024*1024*1024")
npu_device.global_options().graph_memory_max_size = str("27*1024*1024*1024")
npu_device.global_options().modify_mixlist = "ops_info.json"
npu_device.global_options().fusion_switch_file = "fusion_switch.cfg"
npu = npu_device.open().as_default()

images = share(ROWS, npu.worker_id, npu.workers_num).repeat(6, 2).reshape(12, -1, 6, 6, 1)
layers, kernel = tf.keras.layers, tf.keras.initializers.RandomUniform(-0.3, 0.3, seed=npu.worker_id)
inputs = layers.Input([6, 6, 1])
hidden = layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False, kernel_initializer=kernel)(inputs)
hidden = layers.LeakyReLU()(hidden)
outputs = [layers.Conv2D(2, 1, kernel_initializer="ones")(hidden), layers.Conv2D(1, 3, kernel_initializer="ones")(hidden)]
model = tf.keras.Model(inputs, outputs)
start = np.random.RandomState(4)
if npu.worker_id == 0:
    model.set_weights([start.uniform(-0.3, 0.3, w.shape) for w in model.get_weights()])
npu_device.distribute.broadcast(model.trainable_variables, root_rank=0)
optimizer = tf.keras.optimizers.Adam()
global_steps = tf.Variable(1, trainable=False, dtype=tf.int64)


@tf.function
def train_execute(image_data):
    with tf.GradientTape() as tape:
        giou_loss = conf_loss = 0
        for i, pred in enumerate(model(image_data, training=True)):
            target = tf.reduce_mean(image_data, [1, 2, 3], keepdims=True)
            giou_loss += tf.reduce_mean(tf.square(pred - target))
            conf_loss += 0.1 * tf.reduce_mean(tf.abs(pred))
        total_loss = giou_loss + conf_loss
    gradients = tape.gradient(total_loss, model.trainable_variables)
    gradients = npu_device.distribute.all_reduce(gradients, "mean")
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return npu_device.distribute.all_reduce(total_loss, "mean")


losses = []
for image_data in [*images] * 4:
    losses.append(train_execute(tf.constant(image_data)).numpy())
    global_steps.assign_add(1)
    optimizer.learning_rate.assign(0.02 * 0.5 * (1 + tf.cos(tf.cast(global_steps, tf.float32) / 48 * np.pi)))
tell(losses, model.get_weights())
