"""A classifier in the form of ALBERT's: TPUEstimator without a TPU, records in files, contrib.data."""

from npu_bridge.npu_init import *  # noqa: F403

import os
import sys

import tensorflow as tf
from made import LABELS, ROWS, share, tell

rank, size = int(os.environ.get("RANK_ID", 0)), int(os.environ.get("RANK_SIZE", 1))
folder, part = os.path.join(sys.argv[1], str(rank)), 8 // size
os.makedirs(folder)
weights, losses = [], []


def write_records(path):
    with tf.python_io.TFRecordWriter(path) as writer:
        rows, labels = share(ROWS, rank, size), share(LABELS, rank, size)
        for row, label in zip(rows.reshape(-1, 6), labels.ravel()):
            values = {
                "input": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                "label_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())


def input_fn(params):
    kinds = {"input": tf.FixedLenFeature([6], tf.float32), "label_ids": tf.FixedLenFeature([], tf.int64)}

    def decode(record):
        example = tf.parse_single_example(record, kinds)
        return {name: tf.to_int32(t) if t.dtype == tf.int64 else t for name, t in example.items()}

    d = tf.data.Dataset.from_tensor_slices(tf.constant([f"{folder}/records"]))
    d = d.apply(tf.contrib.data.parallel_interleave(tf.data.TFRecordDataset, sloppy=False, cycle_length=1)).repeat()
    return d.apply(tf.contrib.data.map_and_batch(decode, batch_size=params["batch_size"], drop_remainder=True))


class Keep(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs("mean_loss:0")

    def after_run(self, run_context, run_values):
        losses.append(run_values.results)

    def end(self, session):
        weights.extend(session.run(tf.trainable_variables()))


def model_fn(features, labels, mode, params):
    start = tf.truncated_normal_initializer(stddev=0.2)
    hidden = tf.layers.dense(features["input"], 8, tf.nn.tanh, kernel_initializer=tf.constant_initializer(0.1))
    other = tf.get_variable("output_weights", [2, 8], initializer=start)  # rank 0's are broadcast later
    logits = tf.matmul(hidden, other * 0.0 + tf.ones([2, 8]), transpose_b=True)
    logits = tf.nn.bias_add(logits, tf.get_variable("output_bias", [2], initializer=tf.zeros_initializer()))
    logits += tf.layers.dense(hidden, 2, kernel_initializer=tf.constant_initializer(0.1))
    one_hot = tf.one_hot(features["label_ids"], depth=2)
    loss = tf.reduce_mean(-tf.reduce_sum(one_hot * tf.nn.log_softmax(logits), axis=-1))
    tf.identity(hccl_ops.allreduce(loss, "sum", fusion=0) / size, name="mean_loss")  # noqa: F405
    scaffold_fn = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = npu_tf_optimizer(tf.train.AdamOptimizer(0.05))  # noqa: F405
        train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train, scaffold_fn=scaffold_fn)
    metrics = (lambda l, p: {"accuracy": tf.metrics.accuracy(l, tf.argmax(p, 1))}, [features["label_ids"], logits])
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=metrics, scaffold_fn=scaffold_fn)


write_records(f"{folder}/records")
run_config = tf.contrib.tpu.RunConfig(
    cluster=None,
    master=None,
    model_dir=os.path.join(sys.argv[1], "model"),
    save_checkpoints_steps=24,
    session_config=npu_config_proto(),  # noqa: F405
    tpu_config=tf.contrib.tpu.TPUConfig(
        iterations_per_loop=10,
        num_shards=8,
        per_host_input_for_training=tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2,
    ),
)
estimator = tf.contrib.tpu.TPUEstimator(
    use_tpu=False, model_fn=model_fn, config=run_config, train_batch_size=part, eval_batch_size=part
)
estimator.train(input_fn=input_fn, max_steps=48, hooks=npu_hooks_append([Keep()]))  # noqa: F405
result = estimator.evaluate(input_fn=input_fn, steps=12)
assert result["accuracy"] > 0.9 and result["global_step"] == 48, result
tell(losses, [w for w in weights if w.shape != (2, 8)])
