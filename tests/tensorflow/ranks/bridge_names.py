"""npu_bridge's ops and layers against NumPy, in one process."""

from npu_bridge.npu_init import *  # noqa: F403  as scripts do

import numpy as np
from npu_bridge.estimator.npu import npu_convert_dropout  # noqa: F401
from npu_bridge.estimator.npu.npu_dynamic_rnn import DynamicAUGRU, DynamicGRUV2, DynamicRNN

TIME, BATCH, FEATURES, SIZE = 5, 3, 4, 6
numbers = np.random.RandomState(0)
x = numbers.randn(TIME, BATCH, FEATURES).astype("float32")
lengths = np.array([5, 2, 0], "int32")


def value(tensors, feeds=None):
    with tf.Session() as sess:  # noqa: F405
        sess.run(tf.global_variables_initializer())  # noqa: F405
        return sess.run(tensors, feeds)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def lstm(x, w, b, forget_bias, lengths):
    h = c = np.zeros((BATCH, SIZE))
    ys, hs = [], []
    for t in range(len(x)):
        i, j, f, o = np.split(np.concatenate([x[t], h], 1) @ w + b, 4, 1)
        new_c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j)
        new_h = sigmoid(o) * np.tanh(new_c)
        inside = (t < lengths)[:, None]
        h, c = np.where(inside, new_h, h), np.where(inside, new_c, c)
        ys.append(np.where(inside, new_h, 0))
        hs.append(h)
    return np.stack(ys), np.stack(hs)


def gru(x, weights, order, attention=None):
    wi, wh, bi, bh = weights
    h = np.zeros((BATCH, SIZE))
    ys = []
    for t in range(len(x)):
        a, b = np.split(x[t] @ wi + bi, 3, 1), np.split(h @ wh + bh, 3, 1)
        z = sigmoid(a[order.index("z")] + b[order.index("z")])
        r = sigmoid(a[order.index("r")] + b[order.index("r")])
        new = np.tanh(a[order.index("h")] + r * b[order.index("h")])
        if attention is not None:
            z = z * (1 - attention[t][:, None])
        h = z * h + (1 - z) * new
        ys.append(h)
    return np.stack(ys)


def layers():
    for seq in (None, lengths):
        layer = DynamicRNN(SIZE, tf.float32, forget_bias=1.0)  # noqa: F405
        y, h, *_ = layer(tf.constant(x), seq_length=seq)  # noqa: F405
        assert [v.name.split("/")[-1] for v in layer.variables] == ["w:0", "b:0"]
        gradient = tf.gradients(tf.reduce_sum(y), layer.variables[0])[0]  # noqa: F405
        y, h, (w, b), gradient = value([y, h, layer.variables, gradient])
        want = lstm(x, w, b, 1.0, np.full(BATCH, TIME) if seq is None else seq)
        np.testing.assert_allclose(y, want[0], atol=1e-5)
        np.testing.assert_allclose(h, want[1], atol=1e-5)
        assert np.abs(gradient).max() > 0
    both = DynamicRNN(SIZE, tf.float32, direction="BIDIRECTIONAL")  # noqa: F405
    y, (w, b) = value([both(tf.constant(x))[0], both.variables])  # noqa: F405
    everything = np.full(BATCH, TIME)
    np.testing.assert_allclose(y[0], lstm(x, w[0], b[0], 0.0, everything)[0], atol=1e-5)
    np.testing.assert_allclose(y[1], lstm(x[::-1], w[1], b[1], 0.0, everything)[0][::-1], atol=1e-5)
    for order in ("zrh", "rzh"):
        layer = DynamicGRUV2(SIZE, tf.float32, gate_order=order)  # noqa: F405
        y, weights = value([layer(tf.constant(x))[0], layer.variables])  # noqa: F405
        np.testing.assert_allclose(y, gru(x, weights, order), atol=1e-5)
    attention = numbers.rand(TIME, BATCH).astype("float32")
    layer = DynamicAUGRU(SIZE, tf.float32)  # noqa: F405
    y, weights = value([layer(tf.constant(x), attention)[0], layer.variables])  # noqa: F405
    np.testing.assert_allclose(y, gru(x, weights, "zrh", attention), atol=1e-5)
    for bad in ({"direction": "UP"}, {"num_proj": 2}, {"time_major": False}, {"gate_order": "hzr"}):
        try:
            DynamicGRUV2(SIZE, tf.float32, **bad)  # noqa: F405
            raise AssertionError(bad)
        except ValueError as error:
            assert next(iter(bad)) in str(error), error


def ops():
    w, g = numbers.randn(6, 2).astype("float32"), numbers.randn(6, 2).astype("float32")
    norm = np.linalg.norm
    scale = 0.1 * norm(w) / (norm(g) + 0.01 * norm(w) + 1e-5)
    (got,) = value(npu_ops.LARS([tf.constant(w)], [tf.constant(g)], 0.01, 0.1))  # noqa: F405
    np.testing.assert_allclose(got, scale * (g + 0.01 * w), rtol=1e-5)
    got = value(npu_ops.LARSV2(w, g, 0.01, 1e-3, 0.1, use_clip=True))  # noqa: F405
    np.testing.assert_allclose(got, g + 0.01 * w, rtol=1e-5)
    c, h, *_ = value(npu_ops.basic_lstm_cell(x[0], np.zeros((3, 6), "f"), np.zeros((3, 6), "f"),  # noqa: F405
                                             np.ones((10, 24), "f"), np.zeros(24, "f")))
    want = lstm(x[:1], np.ones((10, 24)), np.zeros(24), 1.0, np.full(BATCH, 1))[0][0]
    np.testing.assert_allclose(h, want, atol=1e-5)
    m, v = np.abs(w), np.abs(g)
    got = value(npu_ops.adam_apply_one_with_decay_assign(g, v, m, w, 0.1, 0.9, 0.1, 0.99, 0.01, 0.5, 1e-6))  # noqa: F405
    v2, m2 = 0.99 * v + 0.01 * g * g, 0.9 * m + 0.1 * g
    want = w - 0.1 * (m2 / (np.sqrt(v2) + 1e-6) + 0.5 * w)
    for each, other in zip(got, (v2, m2, want)):
        np.testing.assert_allclose(each, other, rtol=1e-4)
    weight = tf.get_variable("weight", initializer=w)  # noqa: F405
    apply = npu_ops.adam_apply_one_assign(g, v, m, weight, 0.1, 0.9, 0.1, 0.99, 0.01, 1e-6)  # noqa: F405
    with tf.Session() as sess:  # noqa: F405
        sess.run(tf.global_variables_initializer())  # noqa: F405
        sess.run(apply)
        np.testing.assert_allclose(sess.run(weight), w - 0.1 * m2 / (np.sqrt(v2) + 1e-6), rtol=1e-4)
    core = npu_aicore_ops  # noqa: F405
    np.testing.assert_allclose(value(core.centralization(w, [0])), w - w.mean(0), atol=1e-6)
    np.testing.assert_allclose(value(core.prelu(w, 0.25)), np.where(w > 0, w, w / 4))
    np.testing.assert_array_equal(value(core.nonzero([[0, 3], [4, 0]])), [[0, 1], [1, 0]])
    normal = value(core.layer_norm(w, np.ones(2, "f"), np.zeros(2, "f"), 1))[0]
    np.testing.assert_allclose(normal.mean(1), 0, atol=1e-5)
    state = npu_rnn.npu_dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(4), x, dtype=tf.float32) if hasattr(  # noqa: F405
        tf.nn, "rnn_cell") and hasattr(tf.nn.rnn_cell, "BasicLSTMCell") and tf.__version__ < "2.16" else None  # noqa: F405
    assert state is None or value(state[0]).shape == (TIME, BATCH, 4)


def kept():
    with npu_scope.without_npu_compile_scope(), npu_scope.keep_dtype_scope(), npu_scope.npu_stage_scope(0):  # noqa: F405
        tensor = tf.constant(1.0, name="kept")  # noqa: F405
    with profiler.Profiler(level="L1", output_path="."), scoped_graph_manager.ScopedGraphManager():  # noqa: F405
        pass
    util.keep_tensors_dtypes(tf.get_default_graph(), ["kept:0"])  # noqa: F405
    assert util.set_graph_exec_config(tensor, dynamic_input=True) is tensor  # noqa: F405
    util.set_value("a", 1)  # noqa: F405
    assert (util.get_value("a"), util.get_value("b", 2)) == (1, 2)  # noqa: F405
    util.global_dict_init()  # noqa: F405
    assert util.get_value("a") is None  # noqa: F405
    for call, name in (
        (lambda: npu_cpu_ops.embedding_tables([]), "embedding_tables"),  # noqa: F405
        (lambda: npu_plugin.malloc_shared_memory("v", [1], 0), "malloc_shared_memory"),  # noqa: F405
        (lambda: npu_aicore_ops.prod_env_mat_a(0), "prod_env_mat_a"),  # noqa: F405
    ):
        try:
            call()
            raise AssertionError(name)
        except NotImplementedError as error:
            assert name in str(error)

    class Item:
        def __init__(self, size):
            self.size = size

    ranks = [item.root_rank_id for item in util.fair_division([Item(s) for s in (4, 1, 1, 2, 4)], 3)]  # noqa: F405
    assert ranks == sorted(ranks) and set(ranks) == {0, 1, 2} and ranks[0] != ranks[-1], ranks
    strategy = npu_strategy.NPUStrategy()  # noqa: F405
    assert strategy.num_replicas_in_sync == 1
    npu_plugin.npu_resource_init(graph_run_mode=1, precision_mode="allow_mix_precision")  # noqa: F405
    npu_plugin.npu_resource_shutdown()  # noqa: F405


for test in (layers, ops, kept):
    test()
print("all well")
