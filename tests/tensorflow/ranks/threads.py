"""Threads that call collectives: in turn, at once with a group each, and at once on one group."""

import threading

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf
from hccl.manage.api import create_group

hvd.init()
rank, size = hvd.rank(), hvd.size()


@tf.function
def of_function(value):
    return hvd.allreduce(value, op=hvd.Sum)


def eager(value, group="hccl_world_group"):
    return hvd.allreduce(value, op=hvd.Sum, group=group)


def on_threads(call):
    """Returns the exceptions that call(0) and call(1) raise on two threads."""
    errors = []

    def work(number):
        try:
            call(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def check(result, value):
    np.testing.assert_allclose(result, np.full(4, size * value + sum(range(size))))


turns = [threading.Semaphore(1), threading.Semaphore(0)]


def in_turn(number):
    for step in range(50):
        with_function = of_function if step % 2 else eager
        turns[number].acquire()
        check(with_function(tf.fill([4], 10.0 * number + step + rank)), 10.0 * number + step)
        turns[1 - number].release()


assert on_threads(in_turn) == []

for name in ("0", "1"):
    create_group(name, size, list(range(size)))


def on_own_group(number):
    for step in range(50):
        check(eager(tf.fill([4], 10.0 * number + step + rank), group=str(number)), 10.0 * number + step)


assert on_threads(on_own_group) == []


def at_once(number):
    for _ in range(5000):  # until the calls are refused
        of_function(tf.fill([4], 10.0 * number + rank))


for error in on_threads(at_once):
    print("said:", "two threads call collectives of one group at once" in error.message)
