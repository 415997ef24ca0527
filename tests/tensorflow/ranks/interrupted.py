"""Rank 0 waits in TensorFlow for rank 1, which does not call; rank 0 gets SIGINT meanwhile, and rank 1 gets an error:
interrupted.py fit|session|loop"""

import os
import signal
import sys
import threading
import time

import hccl
import tensorflow  # noqa: F401

HOW = sys.argv[1]
if os.environ["RANK"] == "1":
    with hccl.init() as comm:
        try:
            comm.recv(bytearray(1), 0)
        except hccl.HcclError as error:
            print("said:", error)
        comm.abort()
    sys.exit()

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background tests ignore it
if HOW == "session":
    from npu_bridge.npu_init import *  # noqa: F403
import hccl.tensorflow as hvd
import tensorflow as tf
from hccl.tensorflow import _ops

hvd.init()


def interrupt():
    waits = _ops.library().hccl_functions.hccl_tf_waits
    while not waits():
        time.sleep(0.01)
    print("waits", flush=True)
    os.kill(os.getpid(), signal.SIGINT)


def hang():
    if HOW == "session":
        reduced = hccl_ops.allreduce(tf.ones([4]), "sum")  # noqa: F405
        with tf.Session() as session:
            session.run(reduced)
    elif HOW == "fit":
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2)])
        model.compile(hvd.DistributedOptimizer("sgd"), "mse")
        model.fit(tf.ones([4, 4]), tf.ones([4, 2]), verbose=0)
    else:
        step = tf.function(lambda a, b: hvd.grouped_allreduce([a, b]))
        for _ in range(10):
            step(tf.ones([4]), tf.ones([5]))


_ops.library()
threading.Thread(target=interrupt, daemon=True).start()
if HOW == "loop":
    try:
        hang()
    except KeyboardInterrupt:
        print("caught")
    try:
        hang()
    except tf.errors.InternalError as error:
        print("Ctrl-C" in str(error))
else:
    hang()
