"""Speech in the form of Tacotron's: hyperparameters, DynamicRNN, a decoder in tf.while_loop, clipping, summaries."""

from npu_bridge.npu_init import *  # noqa: F403

import sys

import numpy as np
import tensorflow as tf
from made import IDS, share, tell
from npu_bridge.estimator.npu.npu_dynamic_rnn import DynamicRNN
from tensorflow.contrib.training import HParams

hp = HParams(vocab=20, size=8, lr=0.01, max_grad_norm=1.0, schedule=[1, 2], done=True)
hp.parse("lr=0.05,schedule=[2,3]")
session_config = tf.ConfigProto()
custom_op = session_config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["enable_data_pre_proc"].b = True
npu_config = npu_config_proto(config_proto=session_config)  # noqa: F405
init, stop = init_resource(npu_config)  # noqa: F405
place = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
start = np.random.RandomState(2)


def weight(name, *shape):
    return tf.get_variable(name, initializer=start.uniform(-0.3, 0.3, shape).astype("float32"))


texts = share(IDS, *place)
iterator = tf.data.Dataset.from_tensor_slices(texts).repeat(3).make_initializable_iterator()
ids = tf.cast(iterator.get_next(), tf.int32)
ids.set_shape(texts.shape[1:])
with tf.variable_scope("encoder"):
    tensor = tf.nn.embedding_lookup(weight("lookup", hp.vocab, hp.size), ids)
    rnn = DynamicRNN(hidden_size=hp.size, dtype=tf.float32)
    output = tf.transpose(rnn(tf.transpose(tensor, [1, 0, 2]))[0], [1, 0, 2])
first = start.uniform(-0.3, 0.3, (2 * hp.size, 4 * hp.size)).astype("float32")
with tf.variable_scope("decoder"):
    mix, project = weight("mix", 2 * hp.size, hp.size), weight("project", hp.size, hp.vocab)

    def att_body(step, state, outputs):
        scores = tf.nn.softmax(tf.einsum("bts,bs->bt", output, state))
        context = tf.einsum("bt,bts->bs", scores, output)
        state = tf.nn.tanh(tf.concat([state, context], 1) @ mix)
        return step + 1, state, tf.concat([outputs, state[:, None]], axis=1)[:, 1:]

    begin = (0, tf.reduce_mean(output, 1), tf.zeros_like(output))
    outputs = tf.while_loop(lambda step, *_: step < 5, att_body, begin, parallel_iterations=1)[2]
    logits = tf.einsum("bts,sv->btv", outputs, project)
loss = tf.contrib.seq2seq.sequence_loss(logits, ids, tf.ones_like(ids, tf.float32))
global_step = tf.Variable(0, name="global_step", trainable=False)
optimizer = NPULossScaleOptimizer(  # noqa: F405
    NPUDistributedOptimizer(tf.train.AdamOptimizer(hp.lr)), FixedLossScaleManager(loss_scale=1024)  # noqa: F405
)
gvs = [(g if g is None else tf.clip_by_norm(g, hp.max_grad_norm), v) for g, v in optimizer.compute_gradients(loss)]
train = optimizer.apply_gradients(gvs, global_step=global_step)
tf.summary.scalar("loss", loss)
tf.summary.histogram("output", outputs)
merged = tf.summary.merge_all()
mean = hccl_ops.allreduce(loss, "sum", fusion=0) / place[1]  # noqa: F405
with tf.Session(config=npu_config) as sess:
    writer = tf.summary.FileWriter(f"{sys.argv[1]}/{place[0]}", sess.graph)
    sess.run(iterator.initializer)
    sess.run(tf.global_variables_initializer())
    sess.run([v.assign(first) for v in rnn.variables if v.shape == first.shape])
    losses = []
    for _ in range(3 * len(texts)):
        step, summary, value, _ = sess.run([global_step, merged, mean, train])
        writer.add_summary(summary, step)
        losses.append(value)
    writer.close()
    tell(losses, sess.run(tf.trainable_variables()))
shutdown_resource(init, stop)  # noqa: F405
close_session(init)  # noqa: F405
