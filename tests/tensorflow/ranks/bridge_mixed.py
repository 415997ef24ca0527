"""Trains a Keras model with npu_bridge in mixed_float16. In the third step only rank 1's gradients are not finite."""

from npu_bridge.npu_init import *  # noqa: F403

import numpy as np

set_keras_session_npu_config()  # noqa: F405
rank = get_npu_rank_id()  # noqa: F405
tf.compat.v1.keras.layers.enable_v2_dtype_behavior()  # noqa: F405
keras = tf.keras  # noqa: F405
tf.compat.v2.keras.mixed_precision.set_global_policy("mixed_float16")  # noqa: F405
dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
model = keras.Sequential([keras.layers.InputLayer((2,)), dense])
model.compile(npu_keras_optimizer(keras.optimizers.SGD(0.01)), "mse")  # noqa: F405
x = np.full((6, 2), 0.5 + 0.5 * rank, "float32")
if rank == 1:
    x[2] = 60000  # float16 ends at 65504
model.fit(x, np.zeros((6, 1)), batch_size=1, shuffle=False, verbose=0, callbacks=npu_callbacks_append())  # noqa: F405
assert 0.8 < model.get_weights()[0].max() < 0.95  # it has made steps, from 1
print("\nsaid:", model.get_weights()[0].ravel().tolist())
