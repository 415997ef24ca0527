"""A script that reads RANK_SIZE and RANK_ID after the import, and otherwise uses only hccl_ops."""

import os
import sys

import numpy as np

if sys.argv[1] == "npu_bridge":
    from npu_bridge.npu_init import *
else:
    import npu_device
    import tensorflow as tf

RANK, SIZE = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])
mine = tf.constant([RANK + 1.0, 2.0])
if sys.argv[1] == "npu_bridge":
    total = hccl_ops.allreduce(mine, "sum", fusion=0)
    with tf.Session() as sess:
        total = sess.run(total)
else:
    total = tf.function(lambda x: npu_device.distribute.hccl_ops.allreduce(x, "sum"))(mine)
np.testing.assert_array_equal(total, [SIZE * (SIZE + 1) / 2, 2.0 * SIZE])
print(f"said: {RANK} of {SIZE}", flush=True)
