#!/usr/bin/env python3
"""Trains a network on handwritten digits with the ranks that mpirun starts.

It has the same network, data, options and printed lines as train_digits.cc. Every rank computes the
gradients of its share of each batch; HCCL sums the gradients, segment by segment, as backward
completes them. If a rank dies, the other ranks continue.
"""

import math
import os
import sys
import time

# One thread for each rank: the ranks are the parallelism. Must be set before numpy loads its library.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import hccl  # noqa: E402
from digits_options import check, parse_options, usage_error  # noqa: E402

PIXELS, CLASSES = 64, 10
# 8 tensors. The weights of the first layer, whose gradient is computed last, are 3.6 % of all
# parameters. HCCL's default split makes that gradient a segment of its own. So the other gradients
# can be reduced while it is computed.
WIDTHS = [PIXELS, 128, 512, 288, CLASSES]
TENSOR_COUNT = 2 * (len(WIDTHS) - 1)
MOMENTUM = np.float32(0.9)
SPLIT_SEED = 1797
A_RANK_DIED = 21  # the code of an HcclError after a rank's death


# ---- random numbers: the same ones as in random.h ----


def scramble(x):
    """Scrambles each number of an array of uint64 (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def random_bits(seed, indices):
    """Returns the numbers at these indices of the random sequence `seed`."""
    start = scramble(np.array([seed], np.uint64))
    return scramble(start + (indices.astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15))


def random_float(seed, indices):
    """Returns random_bits() as float32 numbers, uniform in [-1, 1)."""
    bits = (random_bits(seed, indices) >> np.uint64(40)).astype(np.int32)
    return (bits - (1 << 23)).astype(np.float32) / np.float32(1 << 23)


def shuffled(count, seed):
    """Returns the numbers 0 to count - 1 in the random order of `seed`."""
    return np.argsort(random_bits(seed, np.arange(count)), kind="stable")


# ---- data ----


def load_digits(path):
    """Returns images and labels for training, and images and labels for the test (the last
    fifth)."""
    images, labels = [], []
    with open(path, encoding="ascii", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                row = [int(word) for word in line.split(",")]
            except ValueError:
                row = []
            in_range = all(0 <= pixel <= 16 for pixel in row)
            if len(row) != PIXELS + 1 or not in_range or row[-1] >= CLASSES:
                raise ValueError(
                    f"{path}: line {number}: expected 64 pixels (0 to 16) and a digit (0 to 9)"
                )
            images.append(row[:-1])
            labels.append(row[-1])
    if len(labels) < 10:
        raise ValueError(f"{path}: {len(labels)} images, expected at least 10")
    order = shuffled(len(labels), SPLIT_SEED)
    images = np.array(images, np.float32)[order] / np.float32(16)
    labels = np.array(labels)[order]
    train = len(labels) - len(labels) // 5
    return images[:train], labels[:train], images[train:], labels[train:]


# ---- network ----


class Mlp:
    """A multi-layer perceptron. Its tensors are contiguous in the order of backward: last layer
    first, bias before weight."""

    def __init__(self, widths, seed):
        self.widths = widths
        self.layers = len(widths) - 1
        self.names, self.shapes, self.offsets = [], [], [0]
        for layer in reversed(range(self.layers)):
            self.add_tensor(f"fc{layer + 1}.bias", (widths[layer + 1],))
            self.add_tensor(f"fc{layer + 1}.weight", (widths[layer], widths[layer + 1]))
        self.weights = np.zeros(self.offsets[-1], np.float32)
        self.tensors = self.views(self.weights)
        for layer in range(self.layers):
            index = self.weight_index(layer)
            places = np.arange(self.offsets[index], self.offsets[index + 1])
            limit = np.float32(math.sqrt(6 / widths[layer]))
            values = limit * random_float(seed, places)
            self.tensors[index][:] = values.reshape(self.shapes[index])

    def add_tensor(self, name, shape):
        self.names.append(name)
        self.shapes.append(shape)
        self.offsets.append(self.offsets[-1] + math.prod(shape))

    def bias_index(self, layer):
        return 2 * (self.layers - 1 - layer)

    def weight_index(self, layer):
        return self.bias_index(layer) + 1

    def views(self, flat):
        """Returns the tensors of a flat array of all parameters, without a copy."""
        ranges = zip(self.offsets, self.offsets[1:], self.shapes)
        return [flat[begin:end].reshape(shape) for begin, end, shape in ranges]

    def forward(self, images, labels):
        """Returns the sum of the cross entropy losses and keeps the values that backward needs."""
        self.outputs = [images]
        for layer in range(self.layers):
            output = self.outputs[-1] @ self.tensors[self.weight_index(layer)]
            output += self.tensors[self.bias_index(layer)]
            if layer + 1 < self.layers:
                np.maximum(output, 0, out=output)
            self.outputs.append(output)
        scores = self.outputs[-1]
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        self.probabilities = powers / powers.sum(axis=1, keepdims=True)
        of_the_right = self.probabilities[np.arange(len(labels)), labels]
        return float(-np.log(np.maximum(of_the_right, 1e-30)).sum(dtype=np.float64))

    def correct(self, labels):
        """Returns the number of images that the last forward classified correctly."""
        return int((self.probabilities.argmax(axis=1) == labels).sum())

    def backward(self, labels, scale, gradients, done):
        """Fills `gradients` with those of (scale * sum of losses). Calls done(i) when gradient i is
        complete."""
        delta = self.probabilities.copy()
        delta[np.arange(len(labels)), labels] -= 1
        delta *= np.float32(scale)
        for layer in reversed(range(self.layers)):
            bias, weight = self.bias_index(layer), self.weight_index(layer)
            np.sum(delta, axis=0, out=gradients[bias])
            done(bias)
            np.matmul(self.outputs[layer].T, delta, out=gradients[weight])
            done(weight)
            if layer > 0:
                delta = (delta @ self.tensors[weight].T) * (self.outputs[layer] > 0)


# ---- training ----


def share(count, comm):
    """Returns the rows of this rank, if `count` rows are divided over the ranks as evenly as
    possible."""
    return slice(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)


def total(comm, value, dtype, op="sum"):
    """Returns one number reduced over all ranks."""
    array = np.array([value], dtype)
    comm.allreduce(array, op=op)
    return array[0].item()


class Training:
    """The state of a rank that trains, and continues if another rank dies. The steps of the
    training are the batches of all epochs, and a test after each epoch."""

    def __init__(self, comm, digits, options):
        self.comm, self.options = comm, options
        self.images, self.labels, self.test_images, self.test_labels = digits
        self.network = Mlp(WIDTHS, options.seed)
        if options.scattered:
            self.gradients = [np.zeros(shape, np.float32) for shape in self.network.shapes]
        else:  # contiguous in the order of backward, so that segments are reduced in place
            self.gradients = self.network.views(np.zeros_like(self.network.weights))
        self.velocity = np.zeros_like(self.network.weights)
        self.fusion = hccl.Fusion(
            comm,
            list(zip(self.network.names, self.gradients)),
            hcom_parallel=options.hcom_parallel,
            split_by_size=options.split_by_size,
            split_by_index=options.split_by_idx,
        )
        self.batches = -(-len(self.labels) // options.batch)
        self.steps = options.epochs * (self.batches + 1)
        self.step = 0  # the next step; the weights contain all earlier steps
        self.epoch = 0  # the epoch of `order`
        self.loss, self.seen = 0.0, 0  # sums of this rank in this epoch

    def say(self, text):
        if self.comm.rank == 0:
            print(text, flush=True)

    def run(self):
        while self.step < self.steps:
            epoch, batch = divmod(self.step, self.batches + 1)
            if batch < self.batches:
                self.train(epoch + 1, batch)
            else:
                self.test(epoch + 1)
            self.step += 1

    def begin(self, epoch):
        seed = int(random_bits(self.options.seed, np.array([epoch]))[0])
        self.epoch, self.order = epoch, shuffled(len(self.labels), seed)
        epochs_left = np.float32(self.options.epochs - epoch + 1)
        self.lr = np.float32(self.options.lr) * epochs_left / np.float32(self.options.epochs)
        self.loss, self.seen = 0.0, 0

    def train(self, epoch, batch):
        if epoch != self.epoch:
            self.begin(epoch)
        rows = self.order[batch * self.options.batch :][: self.options.batch]
        mine = rows[share(len(rows), self.comm)]

        self.fusion.mark("fp_start")
        loss = self.network.forward(self.images[mine], self.labels[mine])
        # The loss is scaled by the size of the whole batch. So the sum of the gradients over the
        # ranks is the gradient of the mean loss, for any number of ranks and any shares.
        self.network.backward(
            self.labels[mine], 1 / len(rows), self.gradients, self.fusion.ready
        )
        self.fusion.mark("bp_end")
        self.fusion.wait()
        velocity = self.network.views(self.velocity)
        for weight, speed, gradient in zip(self.network.tensors, velocity, self.gradients):
            speed *= MOMENTUM
            speed += gradient
            weight -= self.lr * speed
        self.loss += loss
        self.seen += len(mine)
        self.fusion.mark("iteration_end")

    def test(self, epoch):
        """Each rank tests its part of the test images."""
        loss = total(self.comm, self.loss, np.float64) / total(self.comm, self.seen, np.int64)
        mine = share(len(self.test_labels), self.comm)
        self.network.forward(self.test_images[mine], self.test_labels[mine])
        correct = self.network.correct(self.test_labels[mine])
        right = total(self.comm, correct, np.int64) / len(self.test_labels)
        self.say(f"epoch {epoch}: loss {loss:.6f} test accuracy {right:.4f}")

    def go_on(self):
        """Called when a rank has died. The other ranks make a smaller world, and all take the
        weights of a rank that has made the most steps: some ranks may have finished a step that
        others could not finish."""
        smaller = self.comm.shrink()
        self.fusion.rebind(smaller)
        self.comm.destroy()
        self.comm = smaller
        newest = total(smaller, self.step * smaller.size + smaller.rank, np.int64, "max")
        step, root = divmod(newest, smaller.size)
        state = np.concatenate([self.network.weights, self.velocity])
        smaller.broadcast(state, root)
        self.network.weights[:], self.velocity[:] = np.split(state, 2)
        self.step = step
        self.say(f"world size: {smaller.size}, from epoch {step // (self.batches + 1) + 1} on")


def digest(weights):
    """Returns 64 bits that change with any bit of any weight."""
    places = np.arange(len(weights), dtype=np.uint64) << np.uint64(32)
    return int(scramble(places | weights.view(np.uint32)).sum(dtype=np.uint64))


def write_weights(path, weights):
    try:
        with open(path, "wb") as file:
            file.write(weights)
        return True
    except OSError as error:
        print(f"train_digits: --weights: cannot write {path}: {error.strerror}", file=sys.stderr)
        return False


def segment_text(last_indices):
    """Returns [5, 7] as "[0,5] [6,7]"."""
    first = [0] + [last + 1 for last in last_indices[:-1]]
    return " ".join(f"[{a},{b}]" for a, b in zip(first, last_indices))


def report(training):
    """Prints the result of the training. Returns the exit status."""
    comm, network, options = training.comm, training.network, training.options
    value = digest(network.weights)
    signed = value - (1 << 64) if value >> 63 else value
    identical = total(comm, signed, np.int64, "min") == total(comm, signed, np.int64, "max")
    if comm.rank == 0:
        timeline = training.fusion.trace_text().rstrip()
        print(f"time line of the last iteration (microseconds):\n{timeline}")
        print(f"weights digest: {value:016x}")
        print(f"weights identical on all ranks: {'yes' if identical else 'no'}", flush=True)
        if options.trace is not None:
            training.fusion.write_trace(options.trace)
        if options.weights is not None and not write_weights(options.weights, network.weights):
            return 1
    return 0 if identical else 1


def train(comm, digits, options):
    """Trains and reports. Returns the exit status."""
    try:
        training = Training(comm, digits, options)
    except hccl.HcclError as error:
        if options.split_by_size is None and options.split_by_idx is None:
            raise
        return usage_error(error)  # the split does not fit the tensors
    say, network = training.say, training.network
    say(f"world size: {comm.size}")
    widths = "-".join(map(str, WIDTHS))
    say(f"network: {widths}, {len(network.weights)} parameters in {TENSOR_COUNT} tensors")
    say(
        f"images: {len(training.labels)} to train, {len(training.test_labels)} to test, "
        f"batch {options.batch}"
    )
    say(
        f"allreduce: {'parallel' if options.hcom_parallel else 'serial'}, "
        f"gradients {'scattered' if options.scattered else 'contiguous'}"
    )
    say(f"segment index list: {segment_text(training.fusion.segments)}")

    # The seed already gives every rank the same first weights. With this broadcast, a network that
    # rank 0 loads from a file would reach the other ranks, too.
    comm.broadcast(network.weights, root=0)
    start = time.perf_counter()
    while training.step < training.steps:
        try:
            training.run()
        except hccl.HcclError as error:
            if error.code != A_RANK_DIED:
                raise
            print(f"train_digits: rank {training.comm.rank}: {error}", file=sys.stderr)
            survive(training)
    say(f"trained in {time.perf_counter() - start:.2f} s")
    status = report(training)
    training.comm.destroy()
    return status


def survive(training):
    while True:
        try:
            return training.go_on()
        except hccl.HcclError as error:  # another rank has died meanwhile
            if error.code != A_RANK_DIED:
                raise


# ---- command line ----


def main():
    options = parse_options()
    try:
        check(options, TENSOR_COUNT)
    except ValueError as error:
        return usage_error(error)
    try:
        digits = load_digits(options.data)
    except OSError as error:
        return usage_error(f"--data: {options.data}: {error.strerror}")
    except ValueError as error:
        return usage_error(f"--data: {error}")
    if options.batch > len(digits[1]):
        return usage_error(f"--batch: at most the number of training images, {len(digits[1])}")

    rank = "unknown"
    try:
        comm = hccl.init()
        rank = comm.rank
        return train(comm, digits, options)
    except (hccl.HcclError, OSError) as error:
        print(f"train_digits: rank {rank}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
