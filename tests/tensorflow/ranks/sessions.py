"""Trains in sessions and estimators of every kind, the kind FIRST first. In the first training rank 1 kills itself. On
rank 0 this training ends with an error, and so do all later ones: sessions.py FOLDER FIRST"""

from npu_bridge.npu_init import *  # noqa: F403

import os
import signal
import sys

FOLDER, FIRST = sys.argv[1:]
rank, size = get_npu_rank_id(), get_npu_rank_size()  # noqa: F405
train_tools = tf.train  # noqa: F405


def train_op():
    """Returns a training step of all ranks. In its third step rank 1 kills itself."""
    step = train_tools.get_or_create_global_step()
    weight = tf.get_variable("weight", [4], initializer=tf.zeros_initializer())  # noqa: F405
    optimizer = npu_tf_optimizer(train_tools.GradientDescentOptimizer(0.1))  # noqa: F405
    loss = tf.reduce_sum(tf.square(weight - 1.0))  # noqa: F405
    return loss, optimizer.minimize(loss, global_step=step), step


def steps(session, train, step):
    while True:
        session.run(train)
        if rank == 1 and session.run(step) == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def monitored():
    _, train, step = train_op()
    with train_tools.MonitoredTrainingSession() as session:
        steps(session, train, step)


def monitored_with_a_checkpoint():
    _, train, step = train_op()
    hooks = [NPUBroadcastGlobalVariablesHook(0)]  # noqa: F405
    with train_tools.MonitoredTrainingSession(checkpoint_dir=f"{FOLDER}/monitored", hooks=hooks) as session:
        steps(session, train, step)


def singular():
    _, train, step = train_op()
    with train_tools.SingularMonitoredSession() as session:
        steps(session, train, step)


def supervisor():
    _, train, step = train_op()
    with train_tools.Supervisor(logdir=f"{FOLDER}/supervisor").managed_session() as session:
        steps(session, train, step)


def session():
    _, train, step = train_op()
    with tf.Session() as session:  # noqa: F405
        session.run(tf.global_variables_initializer())  # noqa: F405
        steps(session, train, step)


class Killer(train_tools.SessionRunHook):
    runs = 0

    def after_run(self, context, values):
        self.runs += 1
        if rank == 1 and self.runs == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def model_fn(features, labels, mode):
    loss, train, _ = train_op()
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, training_hooks=[Killer()])  # noqa: F405


def data():
    return tf.data.Dataset.from_tensors(tf.zeros([1])).repeat()  # noqa: F405


def npu_estimator():
    config = NPURunConfig(model_dir=f"{FOLDER}/npu", iterations_per_loop=2)  # noqa: F405
    NPUEstimator(model_fn, config=config).train(data, max_steps=100)  # noqa: F405


def estimator():
    tf.estimator.Estimator(model_fn, f"{FOLDER}/estimator").train(data, max_steps=100)  # noqa: F405


kinds = [monitored, monitored_with_a_checkpoint, singular, supervisor, session]
if hasattr(tf, "estimator"):  # noqa: F405
    kinds += [npu_estimator, estimator]
kinds.sort(key=lambda kind: kind.__name__ != FIRST)
assert kinds[0].__name__ == FIRST
for kind in kinds:
    with tf.Graph().as_default():  # noqa: F405
        try:
            kind()
        except tf.errors.OpError as error:  # noqa: F405
            print("said:", kind.__name__, type(error).__name__, error.message.replace("\n", " "))
