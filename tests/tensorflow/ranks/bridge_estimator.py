"""An Estimator as in Ascend's ResNet and BERT scripts, with one model_dir for all ranks."""

from npu_bridge.npu_init import *  # noqa: F403  tf included

import pathlib
import sys

import numpy as np

directory = sys.argv[1]
STEPS, LOOP = 20, 5
moving = []  # this rank's moving mean when training ends


class Keep(tf.train.SessionRunHook):  # noqa: F405
    def end(self, session):
        moving.append(session.run("batch_normalization/moving_mean:0"))


def data(params):
    rank, size = get_rank_id(), get_rank_size()  # noqa: F405  the Estimator has joined
    rows = np.random.RandomState(0).randn(64, 6).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows[:, 0] > 0)).shard(size, rank).repeat()  # noqa: F405
    batch = tf.contrib.data.map_and_batch(lambda x, y: (x, tf.to_int32(y)), params["batch"])  # noqa: F405
    return dataset.apply(batch)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN  # noqa: F405
    hidden = tf.contrib.layers.layer_norm(tf.layers.dense(features, 8, activation=npu_unary_ops.gelu))  # noqa: F405
    logits = tf.layers.dense(tf.layers.batch_normalization(hidden, training=training), 2)  # noqa: F405
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)  # noqa: F405
    if not training:
        accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, 1))  # noqa: F405
        return NPUEstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})  # noqa: F405
    step = tf.train.get_or_create_global_step()  # noqa: F405
    scales = ExponentialUpdateLossScaleManager(2.0**10, 5, 2, decr_ratio=0.5)  # noqa: F405
    optimizer = NPULossScaleOptimizer(  # noqa: F405
        NPUDistributedOptimizer(tf.train.AdamOptimizer(0.05)), scales, is_distributed=True  # noqa: F405
    )
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):  # noqa: F405
        train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss), global_step=step)

    def summaries(step, loss):
        with tf.contrib.summary.create_file_writer(f"{directory}/host").as_default():  # noqa: F405
            with tf.contrib.summary.always_record_summaries():  # noqa: F405
                tf.contrib.summary.scalar("host_loss", loss[0], step=step[0])  # noqa: F405
                return tf.contrib.summary.all_summary_ops()  # noqa: F405

    host_call = (summaries, [tf.reshape(step, [1]), tf.reshape(loss, [1])])  # noqa: F405
    return NPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)  # noqa: F405


config = NPURunConfig(  # noqa: F405
    model_dir=directory,
    iterations_per_loop=LOOP,
    save_checkpoints_steps=10,
    tf_random_seed=1,
    precision_mode="allow_mix_precision",
)
estimator = NPUEstimator(model_fn, config=config, params={"batch": 4})  # noqa: F405
losses = []
output = NPUOutputTensorHook({"loss": "sparse_softmax_cross_entropy_loss/value:0"}, None, losses.extend, 3)  # noqa: F405
told = TellMeStepOrLossHook(step="global_step:0", total_step=STEPS)  # noqa: F405
estimator.train(data, max_steps=STEPS, hooks=[Keep(), output, told])
assert len(losses) == STEPS // LOOP and all("loss" in each for each in losses), losses

# Evaluates at once: all ranks read the last checkpoint, which rank 0 wrote.
found = estimator.evaluate(data, steps=4)
assert found["global_step"] == STEPS and found["accuracy"] > 0.75, found
saved = estimator.get_variable_value("batch_normalization/moving_mean")
assert np.array_equal(saved, moving[0]) == (get_rank_id() == 0)  # noqa: F405
assert estimator.get_variable_value("loss_scale") == 2.0 ** (10 + STEPS // 5)

for path in pathlib.Path(directory, "host").iterdir():
    assert sum(bool(event.summary.value) for event in tf.train.summary_iterator(str(path))) == STEPS  # noqa: F405
print("all well")
