"""Models and functions can be saved and exported, even after as_default() has replaced tf.function."""

import hccl.tensorflow as hvd
import npu_device as npu
import numpy as np
import pytest
import tensorflow as tf

x = tf.constant([[1.0, 2.0, 3.0]])


@pytest.fixture(scope="module", autouse=True)
def default_device():
    before = tf.function
    npu.open().as_default()
    yield
    tf.function = before


def new_class():
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(3.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 3])], jit_compile=True)
        def __call__(self, rows):
            return self.twice(rows) + 1.0

        @tf.function
        def twice(self, rows):
            """A function with a loop."""
            total = tf.zeros_like(rows)
            for _ in tf.range(2):
                total += self.weight * rows
            return total

    return Net


@pytest.mark.parametrize("size", [None, 4])
def test_a_module_keeps_its_functions(size, tmp_path, monkeypatch):
    monkeypatch.setattr(npu._loop, "_size", size)
    kind = new_class()
    net, other = kind(), kind()
    other.weight.assign(0.0)
    np.testing.assert_array_equal(net(x), 6 * x + 1)
    np.testing.assert_array_equal(other(x), tf.ones_like(x))
    net.added = tf.function(lambda rows: rows - 1.0, input_signature=[tf.TensorSpec([None, 3])])
    tf.saved_model.save(net, str(tmp_path), signatures={"add": net.added})
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded(x), 6 * x + 1)
    np.testing.assert_array_equal(loaded.twice(x), 6 * x)
    np.testing.assert_array_equal(loaded.added(x), x - 1)
    (added,) = loaded.signatures["add"](x).values()
    np.testing.assert_array_equal(added, x - 1)


def test_a_function_is_tensorflows():
    function = type(npu._function._tf_function(lambda: None))
    net = new_class()()
    for each in (tf.function(lambda: 1), tf.function(jit_compile=True)(lambda: 1), net.twice):
        assert isinstance(each, function)
    assert net.twice is net.twice and net.twice.__name__ == "twice"
    assert net.twice.__doc__ and net.twice.__doc__ == net.twice.python_function.__doc__


@pytest.mark.parametrize("size", [None, 4])
def test_a_function_calls_another(size, monkeypatch):
    monkeypatch.setattr(npu._loop, "_size", size)
    net = new_class()()

    @tf.function
    def outer(rows):
        for _ in tf.range(3):
            rows = net.twice(rows)
        return rows

    np.testing.assert_array_equal(outer(x), 216 * x)


def test_a_method_is_a_loop(caplog, monkeypatch):
    monkeypatch.setattr(npu._loop, "_size", 4)
    npu._loop._log._said.clear()

    class Trainer:
        @tf.function
        def loop(self, iterator, steps):
            total = tf.constant(0, tf.int64)
            for _ in tf.range(steps):
                total += next(iterator)
            return total

    ones = iter(tf.data.Dataset.from_tensors(tf.constant(1, tf.int64)).repeat())
    trainer = Trainer()
    assert trainer.loop(ones, tf.constant(4)).numpy() == 4 and not caplog.records
    assert trainer.loop(ones, tf.constant(2)).numpy() == 2
    assert "loop runs 2 steps" in caplog.text


wrappers = [None, npu.distribute.npu_distributed_keras_optimizer_wrapper, hvd.DistributedOptimizer]


@pytest.mark.parametrize("wrap", wrappers)
def test_a_model_is_exported_and_saved(wrap, tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.SGD(0.1)
    model.compile(wrap(optimizer) if wrap else optimizer, "mse")
    model.fit(x, tf.ones([1, 2]), verbose=0)
    want = model(x)
    model.export(str(tmp_path / "exported"))
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(loaded.serve(x), want, rtol=1e-6)
    paths = [tmp_path / "model.keras"]
    if not hasattr(optimizer, "apply"):  # Keras 2 can also save in TensorFlow's form
        paths += [tmp_path / "model"]
    for path in paths:
        model.save(str(path))
        loaded = tf.keras.models.load_model(str(path))
        np.testing.assert_allclose(loaded(x), want, rtol=1e-6)
        loaded.fit(x, tf.ones([1, 2]), verbose=0)  # one rank may train alone
    tf.saved_model.save(model, str(tmp_path / "module"))
    loaded = tf.saved_model.load(str(tmp_path / "module"))
    (result,) = loaded.signatures["serving_default"](x).values()
    np.testing.assert_allclose(result, want, rtol=1e-6)


class Reducing(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([])])
    def train(self, step):
        if step > 0.0:  # inside a conditional, which is a separate graph
            self.weight.assign_add(hvd.allreduce(step))
        return self.weight


def test_a_reducing_function_in_a_saved_model_is_named_with_a_remedy(tmp_path):
    module = Reducing()
    module.train(tf.constant(1.0))
    with pytest.raises(ValueError, match="train.*\n*.*with collectives.*Keep it out of the object that is saved"):
        tf.saved_model.save(module, str(tmp_path))
    served = tf.Module()  # the remedy
    served.weight = module.weight
    served.serve = tf.function(lambda rows: served.weight * rows, input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(served, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.serve(tf.constant(2.0)).numpy() == 8
