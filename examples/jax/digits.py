"""Trains on handwritten digits with JAX. The processes share every batch, and the compiler sums their gradients.

torchrun or mpirun starts the ranks; `python -m hccl.jax` makes them processes of JAX."""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"
LAYERS = (64, 128, 64, 10)


def load():
    """Returns images (n, 64) and labels for training, and images and labels for the test, which are
    the last fifth."""
    rows = np.loadtxt(DATA, delimiter=",", dtype=np.int32)
    rows = rows[np.random.default_rng(1797).permutation(len(rows))]
    images, labels = rows[:, :-1].astype(np.float32) / 16, rows[:, -1]
    train = len(rows) - len(rows) // 5
    return images[:train], labels[:train], images[train:], labels[train:]


def weights():
    """The first weights of the layers, the same in every process."""
    random = np.random.default_rng(1)
    pairs = zip(LAYERS, LAYERS[1:])
    return [(random.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32)) for n, m in pairs]


def predict(layers, images):
    for weight, bias in layers[:-1]:
        images = jax.nn.relu(images @ weight + bias)
    weight, bias = layers[-1]
    return images @ weight + bias


def loss(layers, images, labels):
    scores = jax.nn.log_softmax(predict(layers, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def share(batch, sharding):
    """Returns the batch as one array; each process holds a part of it."""
    return jax.make_array_from_callback(batch.shape, sharding, lambda part: batch[part])


@jax.jit
def step(layers, images, labels):
    gradients = jax.grad(loss)(layers, images, labels)
    return jax.tree.map(lambda weight, gradient: weight - 0.3 * gradient, layers, gradients)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64, help="images of all processes together")
    arguments = parser.parse_args()
    mesh = Mesh(np.array(jax.devices()), "data")
    shared, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    images, labels, test_images, test_labels = load()
    layers = jax.device_put(weights(), everywhere)
    begin = time.perf_counter()
    for epoch in range(arguments.epochs):
        order = np.random.default_rng(epoch).permutation(len(images))
        for first in range(0, len(order) - arguments.batch + 1, arguments.batch):
            batch = order[first : first + arguments.batch]
            layers = step(layers, share(images[batch], shared), share(labels[batch], shared))
    layers = jax.tree.map(lambda weight: np.asarray(weight.addressable_data(0)), layers)
    right = np.argmax(np.asarray(predict(layers, test_images)), axis=1) == test_labels
    if jax.process_index() == 0:
        seconds = time.perf_counter() - begin
        print(f"{jax.process_count()} processes: {seconds:.1f} s, accuracy {right.mean():.4f}")


main()
