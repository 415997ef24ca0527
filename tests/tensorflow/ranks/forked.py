"""Collectives in a child that was forked from a rank."""

import os

import hccl.tensorflow as hvd
import tensorflow as tf
from hccl.tensorflow import _ops

hvd.init()
one = tf.ones([3])
hvd.allreduce(one)
calls = [lambda: hvd.allreduce(one), lambda: hvd.allgather(one), lambda: hvd.broadcast(one, 0), lambda: _ops.all_reduce(one)]
child = os.fork()
if child == 0:
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            print("said:", error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
hvd.allreduce(one)
print("all well")
