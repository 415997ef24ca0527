"""Keras in the form of BERT's for questions: Keras's session for an NPU, a model of two outputs, a callback."""

from npu_bridge.npu_init import *  # noqa: F403

import sys

import numpy as np
from made import IDS, LABELS, share, tell
from tensorflow.keras import Model
from tensorflow.keras.callbacks import Callback
from tensorflow.keras.layers import Activation, Dense, Embedding, Flatten, Input
from tensorflow.keras.optimizers import Adam

sess_config = tf.ConfigProto()  # noqa: F405
custom_op = sess_config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")  # noqa: F405
sess_config.graph_options.rewrite_options.remapping = RewriterConfig.OFF  # noqa: F405
set_keras_session_npu_config(config=sess_config)  # noqa: F405
init, stop = init_resource()  # noqa: F405
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
losses = []


class Keep(Callback):
    def on_batch_end(self, batch, logs=None):
        losses.append(logs["loss"])


def kernel(seed):
    return tf.keras.initializers.RandomUniform(-0.3, 0.3, seed=seed)  # noqa: F405


input_ids = Input(shape=(5,))
embedding = Embedding(20, 8, embeddings_initializer=kernel(1))(input_ids)
outputs = []
for name in ("start_logit", "end_logit"):
    logits = Flatten()(Dense(1, name=name, use_bias=False, kernel_initializer=kernel(len(name)))(embedding))
    outputs.append(Activation("softmax")(logits))
model = Model(inputs=[input_ids], outputs=outputs)
optimizer = npu_keras_optimizer(Adam(lr=0.05))  # noqa: F405
model.compile(optimizer=optimizer, loss=["categorical_crossentropy"] * 2, metrics=["accuracy"])
model.summary()
ids = share(IDS, rank, size).reshape(-1, 5).astype("float32")
first, last = (np.eye(5, dtype="float32")[place] for place in (ids.argmax(1), ids.argmin(1)))
callbacks = npu_callbacks_append([Keep()])  # noqa: F405
model.fit(ids, [first, last], epochs=3, verbose=0, batch_size=8 // size, shuffle=False, callbacks=callbacks)
model.save(f"{sys.argv[1]}/{rank}.h5")
with tf.Session() as sess:  # noqa: F405
    total = hccl_ops.allreduce(tf.constant(np.array(losses, "float32")), "sum")  # noqa: F405
    mean = sess.run(total) / size
tell(mean, model.get_weights())
shutdown_resource(init, stop)  # noqa: F405
close_session(init)  # noqa: F405
