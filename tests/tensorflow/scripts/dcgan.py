"""A GAN in the form of DCGAN's for TensorFlow 2: models of own layers, two tapes, two optimizers that reduce."""

import npu_device
import numpy as np
import tensorflow as tf
from made import ROWS, share, tell

npu = npu_device.open().as_default()
place = npu.worker_id, npu.workers_num


class Net(tf.keras.Model):
    def __init__(self, *shape):
        super().__init__()
        starts = [tf.keras.initializers.RandomUniform(-0.3, 0.3, seed=units) for units in shape]
        self.first, self.last = (tf.keras.layers.Dense(n, kernel_initializer=s) for n, s in zip(shape, starts))

    @tf.function
    def call(self, x, training=True):
        return self.last(tf.nn.leaky_relu(self.first(x)))


g, d = Net(8, 6), Net(9, 1)
g(tf.zeros([1, 3])), d(tf.zeros([1, 6]))
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
wrap = npu_device.distribute.npu_distributed_keras_optimizer_wrapper
generator_optimizer, discriminator_optimizer = (wrap(tf.keras.optimizers.Adam(0.004, epsilon=1e-3)) for _ in range(2))
for net, optimizer in ((g, generator_optimizer), (d, discriminator_optimizer)):
    npu_device.distribute.broadcast(net.trainable_variables, 0)
    if hasattr(optimizer, "build"):
        optimizer.build(net.trainable_variables)


@tf.function
def train_step(images, z):
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated = g(z, training=True)
        real, fake = d(images, training=True), d(generated, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake), fake)
        disc_loss = cross_entropy(tf.ones_like(real), real) + cross_entropy(tf.zeros_like(fake), fake)
    gradients = gen_tape.gradient(gen_loss, g.trainable_variables)
    generator_optimizer.apply_gradients(zip(gradients, g.trainable_variables))
    gradients = disc_tape.gradient(disc_loss, d.trainable_variables)
    discriminator_optimizer.apply_gradients(zip(gradients, d.trainable_variables))
    return npu_device.distribute.all_reduce(tf.reduce_mean(tf.abs(generated - images)), "mean")


random, losses = np.random.RandomState(5), []
for images in [*(share(ROWS, *place) * 0.1 + 1.0)] * 4:
    noise = share(random.randn(1, 8, 3).astype("float32"), *place)[0]
    losses.append(train_step(tf.constant(images), tf.constant(noise)).numpy())
tell(losses, g.get_weights() + d.get_weights())
