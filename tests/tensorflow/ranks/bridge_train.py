"""Trains with npu_bridge, the same global batch on any number of ranks:
bridge_train.py session|estimator FILE"""

from npu_bridge.npu_init import *  # noqa: F403  as scripts do

import sys
import tempfile

import numpy as np

HOW, FILE = sys.argv[1:]
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
numbers = np.random.RandomState(0)
x = numbers.randn(64, 6).astype("float32")
y = numbers.randint(0, 3, 64)


def data():
    own = tf.data.Dataset.from_tensor_slices((x, y)).shard(size, rank)  # noqa: F405
    return own.repeat().batch(16 // size)


def model(images, labels):
    start = tf.random_normal_initializer(seed=1 + rank)  # noqa: F405
    weights = tf.get_variable("weights", [6, 3], initializer=start)  # noqa: F405
    bias = tf.get_variable("bias", [3], initializer=tf.zeros_initializer())  # noqa: F405
    logits = tf.matmul(images, weights) + bias  # noqa: F405
    loss = tf.reduce_mean(  # noqa: F405
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)  # noqa: F405
    )
    optimizer = npu_tf_optimizer(tf.train.MomentumOptimizer(0.1, 0.9))  # noqa: F405
    step = tf.train.get_or_create_global_step()  # noqa: F405
    return loss, optimizer.minimize(loss, global_step=step)


if HOW == "session":
    iterator = tf.data.make_initializable_iterator(data())  # noqa: F405
    loss, train = model(*iterator.get_next())
    config = tf.ConfigProto()  # noqa: F405
    optimizer = config.graph_options.rewrite_options.custom_optimizers.add()
    optimizer.name = "NpuOptimizer"
    optimizer.parameter_map["iterations_per_loop"].i = 5
    optimizer.parameter_map["hcom_parallel"].b = True
    hook = NPUBroadcastGlobalVariablesHook(0)  # noqa: F405
    hook.begin()
    with tf.Session(config=config) as sess:  # noqa: F405
        sess.run([tf.global_variables_initializer(), iterator.initializer])  # noqa: F405
        hook.after_create_session(sess, None)
        loop = util.set_iteration_per_loop(sess, train, 5)  # noqa: F405
        for i in range(4):
            sess.run([loop, loss])
            assert sess.run(tf.train.get_global_step()) == 5 * (i + 1)  # noqa: F405
        weights = sess.run(tf.trainable_variables())  # noqa: F405
else:

    def model_fn(features, labels, mode):
        loss, train = model(features, labels)
        return NPUEstimatorSpec(mode, loss=loss, train_op=train)  # noqa: F405

    folder = tempfile.mkdtemp()
    config = NPURunConfig(iterations_per_loop=5, hcom_parallel=True, save_checkpoints_steps=10)  # noqa: F405
    estimator = NPUEstimator(model_fn, model_dir=folder, config=config)  # noqa: F405
    estimator.train(data, max_steps=20)
    assert estimator.get_variable_value("global_step") == 20
    weights = [estimator.get_variable_value(name) for name in ("weights", "bias")]
np.save(f"{FILE}-{rank}.npy", np.concatenate([w.ravel() for w in weights]))
