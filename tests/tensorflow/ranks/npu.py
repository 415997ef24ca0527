"""npu_device on several workers."""

import npu_device as npu
import numpy as np
import tensorflow as tf
from hccl.manage.api import create_group, get_rank_id, get_rank_size

before = tf.function
handle = npu.open()
assert npu.open(0) is handle
x = tf.constant([1.0, 2.0])
assert npu.distribute.all_reduce(x) is x  # as_default() has not been called
assert handle.as_default() is handle and tf.function is npu.npu_compat_function is not before
RANK, SIZE = handle.worker_id, handle.workers_num
assert (RANK, SIZE) == (get_rank_id(), get_rank_size()) and handle.is_cluster_worker()
assert handle.name().endswith("device:NPU:0")
with handle.scope():
    assert "CPU" in tf.zeros([1]).device

total = SIZE * (SIZE + 1) / 2
mine = tf.constant([1.0, 2.0]) * (RANK + 1)
for name, want in [("mean", total / SIZE), ("sum", total), ("max", SIZE), ("min", 1)]:
    for fusion, number in ((0, -1), (1, -1), (2, 3)):
        one = npu.distribute.all_reduce(mine, name, fusion, number)
        assert tf.is_tensor(one)
        np.testing.assert_allclose(one, [want, 2 * want])
        many = npu.distribute.all_reduce((mine, None, mine), name, fusion, number)
        assert isinstance(many, list) and many[1] is None
        np.testing.assert_allclose(many[2], [want, 2 * want])
whole = npu.distribute.all_reduce(tf.constant([RANK, 4]))
assert whole.dtype.is_floating
np.testing.assert_allclose(whole, [(SIZE - 1) / 2, 4])
create_group("all", SIZE, list(range(SIZE)))
np.testing.assert_allclose(npu.distribute.all_reduce(mine, group="all"), [total / SIZE, total * 2 / SIZE])
for wrong in ({"fusion": 3}, {"fusion": 2}, {"fusion": 1, "fusion_id": 4}, {"reduction": "most"}):
    try:
        npu.distribute.all_reduce([mine], **wrong)
    except ValueError:
        continue
    raise AssertionError(wrong)

variables = [tf.Variable(float(RANK)), tf.Variable([RANK, RANK + 5])]
assert npu.distribute.broadcast(variables, root_rank=1) is None
assert variables[0].numpy() == 1 and variables[1].numpy().tolist() == [1, 6]
npu.distribute.broadcast(variables[0])
assert variables[0].numpy() == 1

data = tf.data.Dataset.range(12)
part, batch = npu.distribute.shard_and_rebatch_dataset(data, 4 * SIZE)
assert batch == 4 and [int(i) for i in part] == list(range(RANK, 12, SIZE))
try:
    npu.distribute.shard_and_rebatch_dataset(data, 4 * SIZE + 1)
except ValueError as error:
    assert str(error) == f"Batch size must be divisible by num npus: {SIZE}"
else:
    raise AssertionError("a batch that does not divide")


@npu.npu_compat_function(jit_compile=True)
def compiled(t):
    return npu.distribute.all_reduce(t, "sum")


np.testing.assert_allclose(compiled(mine), [total, 2 * total])

# A wrapped optimizer reduces gradients in every method that takes gradients, also if it contains loss scaling or is
# inside it.
weight = tf.Variable(0.0)
wrapped = npu.distribute.npu_distributed_keras_optimizer_wrapper(tf.keras.optimizers.SGD(1.0), "sum")
ways = [lambda: wrapped.apply_gradients([(tf.constant(RANK + 1.0), weight)])]
if hasattr(wrapped, "apply"):  # Keras 3
    ways += [lambda: wrapped.apply([tf.constant(RANK + 1.0)], [weight])]
    ways += [lambda: wrapped.apply([tf.constant(RANK + 1.0)])]
for times, way in enumerate(ways, 1):
    way()
    assert weight.numpy() == -total * times, (weight.numpy(), times)
for wraps in (lambda o: scale(wrap(o)), lambda o: wrap(scale(o))):
    weight = tf.Variable(1.0)
    wrap = npu.distribute.npu_distributed_keras_optimizer_wrapper
    scale = npu.train.optimizer.NpuLossScaleOptimizer
    optimizer = wraps(tf.keras.optimizers.SGD(1.0))
    optimizer.apply_gradients([(tf.constant(np.inf if RANK == 1 else 1.0), weight)])
    assert weight.numpy() == 1.0
    optimizer.apply_gradients([(tf.constant(RANK + 1.0), weight)])
    assert weight.numpy() == 1.0 - total / SIZE

# If one worker's gradient is not finite, no worker makes the step, and all halve the scale.
weight = tf.Variable(1.0)
scaled = npu.train.optimizer.NpuLossScaleOptimizer(
    tf.keras.optimizers.SGD(1.0), initial_scale=8.0, dynamic_growth_steps=2
)
scaled.apply_gradients([(tf.constant(np.inf if RANK == 1 else 1.0), weight)])
assert weight.numpy() == 1.0 and scaled.loss_scale.numpy() == 4.0
assert not scaled.last_step_finite.numpy()
for _ in range(2):
    loss = scaled.get_scaled_loss(tf.constant(3.0))
    assert loss.numpy() == 12.0
    scaled.apply_gradients(zip(scaled.get_unscaled_gradients([tf.constant(4.0)]), [weight]))
assert weight.numpy() == -1.0 and scaled.loss_scale.numpy() == 8.0
step = tf.function(lambda g: scaled.apply_gradients([(g, weight)]))
step(tf.constant(1.0))
assert weight.numpy() == -2.0 and scaled.last_step_finite.numpy()

# Keras accepts the optimizer: fit scales and unscales, and skips a step whose gradients are not finite.
model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
scaled = npu.train.optimizer.NpuLossScaleOptimizer(tf.keras.optimizers.SGD(0.25), initial_scale=8.0)
model.compile(npu.distribute.npu_distributed_keras_optimizer_wrapper(scaled), "mse")
model.fit(tf.ones([4, 1]), tf.ones([4, 1]), verbose=0)
assert model.get_weights()[0] == 0.5 and scaled.loss_scale.numpy() == 8.0  # a step of 0.25 times 2
model.fit(tf.fill([4, 1], np.inf if RANK == 1 else 1.0), tf.ones([4, 1]), verbose=0)
assert model.get_weights()[0] == 0.5 and scaled.loss_scale.numpy() == 4.0

# Collectives of a conditional, a loop or a function run before the collectives that follow in the program, even if
# their values are ready later.
late = tf.random.normal([800, 800] if RANK == 0 else [2, 2])
weights = [tf.Variable(tf.ones([3])), tf.Variable(tf.ones([2]))]


def update():
    slow = 0.0 * tf.reduce_sum(tf.linalg.matmul(late, late))
    reduced = npu.distribute.all_reduce([weight + slow for weight in weights], "sum")
    for weight, value in zip(weights, reduced):
        weight.assign(value - SIZE + 1)
    return tf.constant(True)


nested = tf.function(update)


@tf.function
def mixed(number):
    tf.cond(number > 0, update, lambda: tf.constant(False))
    first = npu.distribute.hccl_ops.allreduce(number, "sum", fusion=0)
    for _ in tf.range(2):
        update()
    second = npu.distribute.hccl_ops.allreduce(number, "max", fusion=0)
    nested()
    return first, second, npu.distribute.all_reduce(number, "mean")


for _ in range(3):
    assert [float(t) for t in mixed(tf.constant(2.0))] == [2.0 * SIZE, 2.0, 2.0]

shares = [tf.Variable(tf.zeros([n])) for n in (8, 2, 6, 4)]
npu.distribute.grouping_gradients_apply(
    lambda pairs: [v.assign(g + 1) for g, v in pairs], [(tf.ones_like(v), v) for v in shares]
)
assert all((v.numpy() == 2).all() for v in shares)
layer = tf.keras.layers.Dense(3, kernel_initializer="ones", bias_initializer="ones")
layer.build([None, 4])
npu.distribute.grouping_gradients_apply(
    tf.keras.optimizers.SGD(1.0).apply_gradients,
    [(tf.ones([int(n) for n in v.shape]), v) for v in layer.trainable_variables],
)
assert all((v.numpy() == 0).all() for v in layer.trainable_variables)
print("all well")
