"""A GAN in the form of DualGAN's: two optimizers with loss scaling each, a gradient penalty, images from tf.py_func."""

from npu_bridge.npu_init import *  # noqa: F403

import os

import numpy as np
import tensorflow as tf
from made import ROWS, share, tell


def npu_tf_optimizer(opt):
    manager = ExponentialUpdateLossScaleManager(  # noqa: F405
        init_loss_scale=2**10, incr_every_n_steps=1000, decr_every_n_nan_or_inf=2, decr_ratio=0.5
    )
    several = int(os.getenv("RANK_SIZE", "1")) != 1
    npu_opt = NPUDistributedOptimizer(opt)  # noqa: F405
    return NPULossScaleOptimizer(npu_opt, manager, **({"is_distributed": True} if several else {}))  # noqa: F405


def variable(name, shape):
    random = np.random.RandomState(len(name)).randn(*shape).astype("float32") * 0.3
    return tf.get_variable(name, initializer=random)


def generator(noise):
    with tf.variable_scope("A_g_net", reuse=tf.AUTO_REUSE):
        return tf.nn.tanh(noise @ variable("w1", [3, 8])) @ variable("w22", [8, 6])


def discriminator(images):
    with tf.variable_scope("A_d_net", reuse=tf.AUTO_REUSE):
        return tf.nn.leaky_relu(images @ variable("w333", [6, 8])) @ variable("w4444", [8, 1])


with tf.Session(config=npu_config_proto()) as sess:  # noqa: F405
    place = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
    images = share(ROWS, *place) * 0.1 + 1.0
    part = images.shape[1]
    dataset = tf.data.Dataset.range(len(images))
    dataset = dataset.map(lambda i: tf.py_func(lambda i: images[i], inp=[i], Tout=tf.float32))
    dataset = dataset.repeat(3).prefetch(buffer_size=tf.contrib.data.AUTOTUNE)
    iterator = dataset.make_initializable_iterator()
    next_element = iterator.get_next()
    real = tf.placeholder(tf.float32, [part, 6])
    noise = tf.placeholder(tf.float32, [part, 3])
    fake = generator(noise)
    between = 0.5 * (real + fake)
    slopes = tf.gradients(discriminator(between), [between])[0]
    slopes = tf.sqrt(1e-8 + tf.reduce_sum(tf.square(slopes), axis=[1]))
    d_loss = tf.reduce_mean(discriminator(fake)) - tf.reduce_mean(discriminator(real))
    d_loss += 10.0 * tf.reduce_mean((slopes - 1.0) ** 2)
    g_loss = -tf.reduce_mean(discriminator(fake)) + tf.reduce_mean(tf.abs(fake - real))
    d_vars, g_vars = ([v for v in tf.trainable_variables() if key in v.name] for key in ("A_d_", "A_g_"))
    d_optim = npu_tf_optimizer(tf.train.RMSPropOptimizer(0.01, decay=0.9)).minimize(d_loss, var_list=d_vars)
    g_optim = npu_tf_optimizer(tf.train.RMSPropOptimizer(0.01, decay=0.9)).minimize(g_loss, var_list=g_vars)
    clip = [v.assign(tf.clip_by_value(v, -2.0, 2.0)) for v in d_vars]
    apart = hccl_ops.allreduce(tf.reduce_mean(tf.abs(fake - real)), "sum") / place[1]  # noqa: F405
    tf.global_variables_initializer().run()
    sess.run(iterator.initializer)
    random, losses = np.random.RandomState(5), []
    for step in range(3 * len(images)):
        feed = {real: sess.run(next_element), noise: share(random.randn(1, 8, 3), *place)[0]}
        sess.run([d_optim, d_loss], feed_dict=feed)
        sess.run(clip)
        losses.append(sess.run([g_optim, g_loss, apart], feed_dict=feed)[2])
    tell(losses, sess.run(d_vars + g_vars))
