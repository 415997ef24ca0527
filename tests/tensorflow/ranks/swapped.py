"""Two ranks call two collectives of equal size, in different orders or in the same order: swapped.py HOW"""

import sys

import hccl.tensorflow as hvd
import tensorflow as tf

HOW = sys.argv[1]
hvd.init()
last = hvd.rank() == 1
if HOW == "numbers" and not last:  # makes one more model and scope, whose number is part of names
    tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(3)])
    with tf.Graph().as_default(), tf.name_scope("step"):
        hvd.allreduce(tf.ones([3]), name="extra_1/loss:0")


CALLS = {
    "allgather": hvd.allgather,
    "alltoall": hvd.alltoall,
    "broadcast": lambda own, name: hvd.broadcast(own, 0, name),
    "grouped_allgather": lambda own, name: hvd.grouped_allgather([own, own], name)[0],
    "grouped_reducescatter": lambda own, name: hvd.grouped_reducescatter([own, own], hvd.Sum, name=name)[0],
    "reducescatter": lambda own, name: hvd.reducescatter(own, hvd.Sum, name=name),
}


def pair(first, second, call=lambda own, name: hvd.allreduce(own, hvd.Sum, name=name)):
    """Returns the results of two named collectives."""
    return [call(tf.ones([4]) * (1 + i), name=name) for i, name in enumerate((first, second))]


def refused(call, *arguments):
    try:
        call(*arguments)
        print("said: no error")
    except tf.errors.OpError as error:
        print("said:", type(error).__name__, error.message.replace("\n", " "))


def kinds():
    """Swaps two collectives of each kind, and the gradients of two collectives."""
    for kind, call in CALLS.items():
        names = [f"{kind} alpha", f"{kind} beta"]
        refused(pair, *(reversed(names) if last else names), call)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(own := tf.ones([4]))
            results = [call(own, name=f"{name} forward") for name in names]
        for result in reversed(results) if last else results:
            refused(tape.gradient, result, own)


def factors():
    """Each case makes one rank's call another one by a factor or a division outside the collective. Each ends its group."""
    whole, sparse = tf.constant([6, 6]), tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), [4, 2])
    other = {"op": hvd.Sum} if last else {"op": hvd.Average}
    for name in (None, "loss"):
        for case in (
            lambda: hvd.allreduce(whole, **other, **options),
            lambda: hvd.grouped_allreduce([whole, tf.ones([2])], **other, **options),
            lambda: hvd.allreduce(tf.ones([2]), op=hvd.Max, postscale_factor=2.0 if last else 1.0, **options),
            lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, prescale_factor=2.0 if last else 1.0, **options),
            lambda: hvd.reducescatter(tf.ones([2]), **other, **options),
            lambda: hvd.reducescatter(tf.ones([2]), op=hvd.Sum, prescale_factor=2.0 if last else 4.0, **options),
            lambda: hvd.allreduce(sparse, **other, **options),
        ):
            options = {"name": name, "process_set": hvd.add_process_set([0, 1])}
            refused(case)


def train(swap):
    """Trains one step of two layers of the same size."""
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), *(tf.keras.layers.Dense(3) for _ in range(2))])
    variables = [layer.kernel for layer in model.layers]
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    optimizer.build(variables)

    def step(first, second):
        gradients = {0: tf.ones([3, 3]), 1: 2 * tf.ones([3, 3])}
        optimizer.apply_gradients([(gradients[i], variables[i]) for i in (first, second)])

    tf.function(step)(*((1, 0) if swap else (0, 1)))


try:
    if HOW == "first":  # swapped when both are first used
        pair(*(("beta", "alpha") if last else ("alpha", "beta")))
    elif HOW == "later":
        pair("alpha", "beta")
        pair(*(("beta", "alpha") if last else ("alpha", "beta")))
    elif HOW == "function":
        both = tf.function(pair)
        pair("alpha", "beta")
        both(*(("beta", "alpha") if last else ("alpha", "beta")))
    elif HOW == "kinds":
        kinds()
    elif HOW == "factors":
        factors()
    elif HOW == "gradients":
        train(swap=last)
    elif HOW == "numbers":
        train(swap=False)
        sums = pair(*(("dense_4/kernel:0", "grad_1") if last else ("dense/kernel:0", "grad_1")))
        print("said:", [float(each[0]) for each in sums])
    elif HOW == "roles":
        sums = pair(*(("worker/loss", "beta") if last else ("chief/loss", "beta")))
        print("said:", [float(each[0]) for each in sums])
except tf.errors.OpError as error:
    print("said:", type(error).__name__, error.message.replace("\n", " "))
