"""Each collective compared with NumPy on every rank: eager, and in a tf.function."""

import hccl.tensorflow as hvd
import numpy as np
import tensorflow as tf
from hccl.tensorflow import _ops

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SUMS = {"sum": sum, "prod": np.prod, "max": np.max, "min": np.min}


def of(rank, shape=(3, 5), dtype="float32"):
    """Small whole numbers: exact in every type."""
    return tf.constant(np.random.default_rng(rank).integers(1, 4, shape), dtype)


def all_of(shape=(3, 5), dtype="float32"):
    return [of(rank, shape, dtype).numpy().astype("float64") for rank in range(SIZE)]


def both_ways(function, *arguments):
    """Runs the function eagerly and in a graph: the results must be equal."""
    eager = function(*arguments)
    graph = tf.function(function)(*arguments)
    tf.nest.map_structure(np.testing.assert_array_equal, eager, graph)
    return eager


def reductions():
    for dtype in NUMBERS + FLOATS:
        for name in SUMS:
            got = both_ways(lambda t, name=name: _ops.all_reduce(t, name), of(RANK, dtype=dtype))
            want = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[name](
                all_of(dtype=dtype), axis=0
            )
            assert got.dtype == tf.as_dtype(dtype)
            np.testing.assert_array_equal(got.numpy().astype("float64"), want)
    mean = np.mean(all_of(), axis=0)
    np.testing.assert_allclose(both_ways(hvd.allreduce, of(RANK)), mean, rtol=1e-6)
    exact = both_ways(hvd.allreduce, of(RANK, dtype="float64"))  # a third is not exact in fp32
    np.testing.assert_allclose(exact, mean, rtol=1e-15)
    whole = hvd.allreduce(of(RANK, dtype="int32"))
    assert whole.dtype == tf.float64
    np.testing.assert_allclose(whole, mean)
    part = _ops.reduce(of(RANK), "sum", SIZE - 1)
    want = np.sum(all_of(), axis=0) if RANK == SIZE - 1 else of(RANK)
    np.testing.assert_array_equal(part, want)
    scattered = both_ways(lambda t: _ops.reduce_scatter(t, "sum", SIZE), of(RANK, (2 * SIZE, 3)))
    want = np.sum(all_of((2 * SIZE, 3)), axis=0)[2 * RANK : 2 * RANK + 2]
    np.testing.assert_array_equal(scattered, want)


def lists():
    slices = tf.IndexedSlices(tf.ones([2, 5]) * (RANK + 1), tf.constant([0, 2]), [4, 5])
    large = tf.fill([100000], float(RANK))
    tensors = [of(RANK), None, of(RANK, dtype="float64"), slices, large, of(RANK, (), "float32")]
    got = hvd.grouped_allreduce(tensors, hvd.Sum)
    assert got[1] is None and got[2].dtype == tf.float64
    np.testing.assert_array_equal(got[0], np.sum(all_of(), axis=0))
    np.testing.assert_array_equal(got[2], np.sum(all_of(), axis=0))
    dense = np.zeros((4, 5))
    dense[[0, 2]] = SIZE * (SIZE + 1) / 2
    assert isinstance(got[3], tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(got[3]), dense)
    np.testing.assert_array_equal(got[4], np.full(100000, sum(range(SIZE))))
    np.testing.assert_array_equal(got[5], np.sum(all_of(()), axis=0))
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allreduce([None]) == [None]


def moves():
    roots = both_ways(
        lambda a, b: _ops.broadcast([a, b], SIZE - 1), of(RANK), tf.constant([RANK > 0, True])
    )
    np.testing.assert_array_equal(roots[0], of(SIZE - 1))
    np.testing.assert_array_equal(roots[1], [SIZE > 1, True])
    gathered = both_ways(lambda t: _ops.all_gather(t, SIZE), of(RANK))
    np.testing.assert_array_equal(gathered, np.concatenate(all_of()))
    rows = both_ways(hvd.allgather, tf.fill([RANK + 1, 2], RANK))
    want = np.concatenate([np.full((r + 1, 2), r) for r in range(SIZE)])
    np.testing.assert_array_equal(rows, want)


def all_to_all():
    counts = np.array([[(i + 2 * j) % 3 for j in range(SIZE)] for i in range(SIZE)])

    def block(i, j):
        return [100.0 * i + j] * counts[i, j]

    data = tf.constant([x for j in range(SIZE) for x in block(RANK, j)], tf.float32)
    want = [x for i in range(SIZE) for x in block(i, RANK)]
    sent, received = counts[RANK], counts[:, RANK]
    starts = [np.concatenate([[0], np.cumsum(c)[:-1]]) for c in (sent, received)]
    got = _ops.all_to_all_v(data, sent, starts[0], received, starts[1])
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(both_ways(lambda d: _ops.all_to_all_v_c(d, counts, RANK), data), want)


def any_rank():
    """A tf.function may know no shape, not even the number of dimensions."""
    for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter, lambda t: hvd.broadcast(t, 0)):
        for shape in ((2 * SIZE,), (2 * SIZE, 3), (SIZE, 2, 3)):
            traced = tf.function(call, input_signature=[tf.TensorSpec(None, tf.float32)])
            np.testing.assert_allclose(traced(of(RANK, shape)), call(of(RANK, shape)), rtol=1e-6)


def messages():
    if RANK == 0:
        for peer in range(1, SIZE):
            _ops.send(of(peer), 7, peer)
            assert _ops.receive([2], tf.int32, 8, peer).numpy().tolist() == [peer, peer]
    else:
        np.testing.assert_array_equal(_ops.receive([3, 5], tf.float32, 7, 0), of(RANK))
        _ops.send(tf.constant([RANK, RANK]), 8, 0)


def gradients():
    x = of(RANK)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(hvd.allreduce(x * x, op=hvd.Sum) * (RANK + 1.0))
    weights = sum(rank + 1.0 for rank in range(SIZE))
    np.testing.assert_allclose(tape.gradient(loss, x), 2 * x * weights)
    variable = tf.Variable(float(RANK))
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = variable * (RANK + 1.0)
    np.testing.assert_allclose(tape.gradient(loss, variable), np.mean(range(1, SIZE + 1)))


def refusals():
    for wrong, text in [
        (lambda: _ops.all_gather(of(RANK), SIZE + 1), "rank_size is"),
        (lambda: _ops.reduce_scatter(tf.ones([SIZE + 1]), "sum", SIZE), "N * rank_size"),
        (lambda: _ops.all_reduce(of(RANK), group="nobody"), "nobody"),
        (lambda: _ops.all_to_all_v_c(of(RANK, (4,)), np.ones((SIZE, SIZE)), RANK + 1), "rank is"),
    ]:
        try:
            wrong()
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.InternalError) as e:
            assert text in str(e), e
        else:
            raise AssertionError(f"not refused: {text}")
    for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        try:
            call(1.0)
        except ValueError as error:
            assert "a scalar has no rows" in str(error), error
        else:
            raise AssertionError("a scalar is not refused")
    for one, other in (((2, 3), (3, 2)), ((1, 3, 2), (2, 1, 3)), ((6,), (6, 1))):
        try:
            hvd.alltoall(of(RANK, (SIZE, *(one if RANK == 0 else other))))
        except tf.errors.InvalidArgumentError as error:
            assert "the ranks' tensors differ in a dimension" in str(error), error
        else:
            raise AssertionError("rows of other shapes were exchanged")
    lengths = [2, 3, 4 + RANK, 5]
    try:
        hvd.reduce_list([tf.zeros([n]) for n in lengths], "sum", names=list("abcd"))
    except tf.errors.InvalidArgumentError as error:
        assert "c has 4 elements on rank 0, 5 on rank 1" in str(error), error
    else:
        raise AssertionError("lists that differ were reduced")


for test in (reductions, lists, moves, all_to_all, any_rank, messages, gradients, refusals):
    test()
print("all well")
