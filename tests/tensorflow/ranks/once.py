"""Each gradient is reduced exactly once, whoever computes it: on two ranks the gradients are 1 and 2."""

import itertools

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
RANK = hvd.rank()
v1 = tf.compat.v1.train


def moved(step, want, function):
    """Checks that a step adds `want` to a variable of 0."""
    variable = tf.Variable(tf.zeros([2]))
    step = step(variable)
    (tf.function(step) if function else step)()
    np.testing.assert_allclose(variable.numpy(), [want] * 2)


def tape_and_optimizer(make, change=lambda gradient: gradient, **options):
    """A DistributedGradientTape, then a DistributedOptimizer."""

    def made(variable):
        optimizer = hvd.DistributedOptimizer(make(1.0), hvd.Sum, **options)
        if hasattr(optimizer, "build"):
            optimizer.build([variable])

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(change(variable)) * (RANK + 1.0)
            gradient = hvd.DistributedGradientTape(tape, hvd.Sum).gradient(loss, variable)
            optimizer.apply_gradients([(gradient, variable)])

        return step

    return made


def tape_alone(variable):
    """A tf.GradientTape, then a DistributedOptimizer of an optimizer of TensorFlow 1."""
    optimizer = hvd.DistributedOptimizer(v1.GradientDescentOptimizer(1.0), hvd.Sum)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * (RANK + 1.0)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

    return step


def computed_and_changed(variable):
    """compute_gradients and apply_gradients, with other tensors between them."""
    optimizer = hvd.DistributedOptimizer(v1.GradientDescentOptimizer(1.0), hvd.Sum)

    def step():
        ((gradient, _),) = optimizer.compute_gradients(lambda: tf.reduce_sum(variable) * (RANK + 1.0), [variable])
        optimizer.apply_gradients([(gradient * 2.0, variable)])

    return step


def in_graphs_of_tensorflow_1():
    """Gradients that are computed once and applied in two branches, or in a branch and applied after it; and gradients
    of two losses, of which the second ones are not from compute_gradients."""
    v2 = tf.compat.v1.enable_control_flow_v2, tf.compat.v1.disable_control_flow_v2
    for how, clip, control_flow in itertools.product(("apply", "compute", "two"), (False, True), reversed(v2)):
        with tf.Graph().as_default():
            control_flow()
            variable = tf.compat.v1.get_variable("variable", initializer=[0.0, 0.0], use_resource=True)
            optimizer, flag = hvd.DistributedOptimizer(v1.GradientDescentOptimizer(1.0), hvd.Sum), tf.constant(clip)
            loss = tf.reduce_sum(variable) * (RANK + 1.0)

            def computed(share):
                return optimizer.compute_gradients(loss)[0][0] * share  # noqa: B023

            def applied(gradient):
                return optimizer.apply_gradients([(gradient, variable)])  # noqa: B023

            if how == "apply":
                whole = computed(1.0)
                step = tf.cond(flag, lambda: applied(whole / 3.0), lambda: applied(whole * 1.0))  # noqa: B023
            elif how == "compute":
                step = applied(tf.cond(flag, lambda: computed(1 / 3), lambda: computed(1.0)))  # noqa: B023
            else:
                first = optimizer.minimize(loss)
                with tf.control_dependencies([first]):
                    step = applied(tf.gradients(loss * 2.0, variable)[0] * (1 / 3 if clip else 1.0))
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                session.run(step)
                want = {"apply": 0.0, "compute": 0.0, "two": -3.0}[how] - (6 if how == "two" else 3) * (1 / 3 if clip else 1)
                np.testing.assert_allclose(session.run(variable), [want] * 2, rtol=1e-6, err_msg=f"{how} {clip}")
    v2[0]()


def ranks_of_other_sets():
    """A reduction over other ranks does not count: the optimizer reduces again."""
    only, variable = hvd.add_process_set([RANK for RANK in range(2)]), tf.Variable(0.0)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), hvd.Sum)
    with tf.GradientTape() as tape:
        loss = variable * (RANK + 1.0)
    tape = hvd.DistributedGradientTape(tape, hvd.Sum, process_set=only)
    optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
    assert variable.numpy() == -6


def fit():
    """If the optimizer is one of TensorFlow 1, Keras 2's fit() calls only its method apply_gradients."""
    layers = [tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    model = tf.keras.Sequential(layers)
    model.compile(hvd.DistributedOptimizer(v1.GradientDescentOptimizer(0.1)), "mse")
    model.fit(np.ones((2, 1)) * (RANK + 1.0), np.ones((2, 1)), batch_size=2, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], [[0.3]], rtol=1e-6)


for function in (False, True):
    for make in (tf.keras.optimizers.SGD, v1.GradientDescentOptimizer):
        moved(tape_and_optimizer(make), -3, function)
        moved(tape_and_optimizer(make, lambda variable: tf.gather(variable, [0, 1])), -3, function)
    moved(tape_alone, -3, function)
    moved(computed_and_changed, -6, function)
ranks_of_other_sets()
in_graphs_of_tensorflow_1()
summed = tf.Variable(tf.zeros([2]))
step = tape_and_optimizer(tf.keras.optimizers.SGD, backward_passes_per_step=2)(summed)
for _ in range(2):
    step()
np.testing.assert_allclose(summed.numpy(), [-6, -6])
if tf.__version__.startswith("2.15"):
    fit()
print("all well")
