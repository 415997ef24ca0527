"""Ranks as processes, with the TensorFlow of this environment."""

import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import HERE, on_ranks, printed, run, said, start

RANKS = HERE / "ranks"


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_are_numpys(size):
    assert all("all well" in output for output in on_ranks(size, RANKS / "collectives.py", fresh=size == 2))


@pytest.mark.parametrize("size", [2, 3])
def test_retracing_on_one_rank_and_gradients(size):
    on_ranks(size, RANKS / "plain.py")


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_of_gradients(size):
    assert all("all well" in output for output in on_ranks(size, RANKS / "second_order.py"))


def test_sparse_gradients_stay_sparse():
    assert all("all well" in output for output in on_ranks(2, RANKS / "sparse.py"))


def test_horovods_names_and_keywords():
    assert all("all well" in output for output in on_ranks(2, RANKS / "keywords.py"))


def test_gradients_are_reduced_once():
    assert all("all well" in output for output in on_ranks(2, RANKS / "once.py"))


TF_KERAS = """
import hccl.tensorflow as hvd, npu_device as npu, numpy as np, tensorflow as tf, tf_keras
npu.open().as_default()
x, y = np.full((4, 1), hvd.rank() + 1.0), np.ones((4, 1))
callbacks = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]
callbacks += [hvd.LearningRateWarmupCallback(0.1, 1), *npu.distribute.npu_callbacks_append()]
scaler = npu.train.optimizer.NpuLossScaleOptimizer
for wrap in (hvd.DistributedOptimizer, npu.distribute.npu_distributed_keras_optimizer_wrapper):
    for outer in (lambda own: own, scaler):
        dense = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = tf_keras.Sequential([tf_keras.layers.Input((1,)), dense])
        model.compile(outer(wrap(tf_keras.optimizers.SGD(0.1))), "mse")
        model.fit(x, y, verbose=0, callbacks=callbacks[:2] + callbacks[3:])
        np.testing.assert_allclose(model.get_weights()[0], [[0.3]], rtol=1e-5)
model.fit(x, y, verbose=0, callbacks=callbacks)
print("all well")
"""


@pytest.mark.skipif(tf.__version__.startswith("2.15"), reason="tf.keras is Keras 2")
def test_the_package_tf_keras_beside_keras_3():
    assert all("all well" in output for output in on_ranks(2, "-c", TF_KERAS))


def test_a_collective_in_a_forked_child_is_refused():
    (output,) = on_ranks(1, RANKS / "forked.py")
    assert [error.startswith("hccl: process") and "forked" in error for error in said(output)] == [True] * 4, output
    assert "all well" in output


JITTED = """
import hccl.tensorflow as hvd, sys, tensorflow as tf
hvd.init()
@tf.function
def inner(x):
    return tf.cond(x[0] > 0.0, lambda: hvd.allreduce(x), lambda: x)
@tf.function(jit_compile=True)
def outer(x):
    return inner(x) + 1.0
model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
for call in (lambda: outer(tf.ones([2])), lambda: model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0)):
    try:
        call()
    except ValueError as error:
        print("said:", " ".join(str(error).split()))
print("said:", inner(tf.ones([2])).numpy())
"""


def test_a_collective_in_a_function_for_xla_names_the_function_and_the_option():
    (output,) = on_ranks(1, "-c", JITTED)
    own, fit, alone = said(output)
    assert 'hccl: "outer" is compiled by XLA' in own and "omit jit_compile=True" in own, output[-3000:]
    assert "is compiled by XLA" in fit and "Model.compile" in fit, output[-3000:]
    assert alone == "[1. 1.]"


def test_npu_device():
    assert all("all well" in output for output in on_ranks(2, RANKS / "npu.py"))


@pytest.mark.parametrize("how", ["fit", "loop", "plain"])
def test_any_number_of_ranks_ends_with_the_same_weights(how, tmp_path):
    weights = []
    for size in (1, 2, 4):
        on_ranks(size, RANKS / "train.py", how, tmp_path / str(size))
        weights += [np.load(tmp_path / f"{size}-{rank}.npy") for rank in range(size)]
    for other in weights[1:]:
        np.testing.assert_allclose(other, weights[0], rtol=1e-5, atol=1e-5)
    assert np.array_equal(weights[1], weights[2])


def test_models_on_ranks(tmp_path):
    assert all("all well" in output for output in on_ranks(2, RANKS / "models.py", tmp_path))


def test_mpirun(tmp_path):
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2", sys.executable]
    done = subprocess.run([*command, RANKS / "train.py", "fit", tmp_path / "m"], timeout=120)
    assert done.returncode == 0
    assert np.array_equal(np.load(tmp_path / "m-0.npy"), np.load(tmp_path / "m-1.npy"))


def test_a_killed_rank_is_named_in_fit():
    ranks = start(3, RANKS / "killed.py")
    outputs = printed(ranks)
    assert ranks[1].returncode == -9
    for rank in (0, 2):
        (error,) = said(outputs[rank])
        assert "rank 1" in error, outputs[rank]


OLD = tf.__version__.startswith("2.15")


@pytest.mark.parametrize("first", ["monitored", "npu_estimator" if OLD else "supervisor"])
def test_a_killed_rank_ends_sessions_and_estimators_of_every_kind(tmp_path, first):
    """After errors that look like a preemption, TensorFlow's own sessions and estimators would restart for ever."""
    ranks = start(2, RANKS / "sessions.py", tmp_path, first, fresh=True)
    output, _ = printed(ranks)
    errors = said(output)
    assert ranks[0].returncode == 0 and len(errors) == (7 if OLD else 5), output[-3000:]
    for error in errors:
        assert "InternalError" in error and "rank 1" in error, error


@pytest.mark.parametrize("how", ["first", "later", "function", "gradients"])
def test_a_swap_of_two_collectives_of_equal_size_names_both_on_all_ranks(how):
    names = ("dense/kernel", "dense_1/kernel") if how == "gradients" else ("alpha", "beta")
    for output in on_ranks(2, RANKS / "swapped.py", how):
        (error,) = said(output)
        assert "InvalidArgumentError" in error and all(name in error for name in names), error


def test_a_swap_is_an_error_in_every_kind_of_collective():
    for output in on_ranks(2, RANKS / "swapped.py", "kinds"):
        errors = said(output)
        assert len(errors) == 6 * 3, output[-3000:]
        for i, error in enumerate(errors):
            assert "InvalidArgumentError" in error and "alpha" in error and "beta" in error, error
            assert ("gradient of" in error) == (i % 3 > 0), error


def test_other_factors_and_divisions_are_errors():
    for output in on_ranks(2, RANKS / "swapped.py", "factors"):
        errors = said(output)
        assert len(errors) == 2 * 7 and all("calls differ" in error for error in errors), output[-3000:]


def test_unnamed_collectives_keep_the_order_in_every_session():
    """Where TensorFlow runs no graph optimizer, collectives that overtake each other are an error."""
    for output in on_ranks(2, RANKS / "overtaking.py"):
        *ordered, session, scaled, loop, wrapped = said(output)
        assert len(ordered) == 7, output[-3000:]
        for each in ordered:
            assert each.endswith("[[2.0, 2.0, 2.0], [20.0, 20.0, 20.0]]"), each
        for error in (session, scaled, loop, wrapped):
            assert "EI0005" in error and "of its graph" in error, error


def test_names_that_differ_in_tensorflows_numbers_are_the_same():
    for output in on_ranks(2, RANKS / "swapped.py", "numbers"):
        assert said(output) == ["[2.0, 4.0]"], output[-3000:]


def test_names_are_not_compared_on_request():
    for output in on_ranks(2, RANKS / "swapped.py", "roles"):
        (error,) = said(output)
        assert "HCCL_COMPARE_NAMES=0" in error, output[-3000:]
    for output in on_ranks(2, RANKS / "swapped.py", "roles", HCCL_COMPARE_NAMES="0"):
        assert said(output) == ["[2.0, 4.0]"], output[-3000:]


@pytest.mark.parametrize("how", ["fit", "session", "loop"])
def test_ctrl_c_ends_a_wait_for_other_ranks(how):
    """The other rank does not call, and also gets an error."""
    ranks = start(2, RANKS / "interrupted.py", how, fresh=how == "session")
    output, other = printed(ranks)
    assert "waits" in output, output[-3000:]
    (error,) = said(other)
    assert "rank 0 aborted" in error and "Ctrl-C" in error, other
    if how == "loop":
        assert output.split()[-2:] == ["caught", "True"], output[-3000:]
    else:
        assert ranks[0].returncode == -signal.SIGINT and "KeyboardInterrupt" in output, output[-3000:]


def test_two_threads_at_once_on_one_group_are_refused():
    """Threads that call in turn are allowed, and so are threads with a group each."""
    for output in on_ranks(2, RANKS / "threads.py"):
        assert said(output) == ["True", "True"], output[-3000:]


def test_building_says_what_is_missing(tmp_path):
    found = run("-m", "hccl.tensorflow.build")
    assert found.stdout.strip().endswith(".so"), found.stderr
    nothing = run("-m", "hccl.tensorflow.build", "--force", PATH=str(tmp_path))
    assert nothing.returncode != 0
    assert "cmake is missing" in nothing.stderr and "Traceback" not in nothing.stderr


def test_a_real_ascend_installation_wins(tmp_path):
    (tmp_path / "npu_device").mkdir()
    (tmp_path / "npu_device" / "__init__.py").write_text("real = True")
    text = "import npu_device; print(getattr(npu_device, 'real', False))"
    assert run("-c", text, PYTHONPATH=str(tmp_path)).stdout.strip() == "True"
    assert run("-c", text, fresh=True).stdout.strip() == "False"


TRACE = """
import numpy, hccl
with hccl.init() as comm, hccl.Fusion(comm, [("weights", numpy.ones(4, "float32"))]) as fusion:
    for _ in range(2):
        fusion.ready(0)
        fusion.wait()
    fusion.write_trace(PATH)
"""


# Packages that this environment lacks are taken from the environment of PyTorch.
OTHERS = """
import sys, tensorflow as tf
sys.path.append(TORCH)
import torch, onnx
from onnx import TensorProto, helper
tf.constant(1), tf.train.Example().SerializeToString(), torch.ones(1)
node = helper.make_node("Relu", ["x"], ["y"])
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
model = helper.make_model(helper.make_graph([node], "graph", ends[:1], ends[1:]))
onnx.checker.check_model(onnx.load_from_string(model.SerializeToString()))
"""


@pytest.mark.parametrize("first", ["frameworks", "hccl"])
def test_protobuf_stays_apart(first, tmp_path):
    """TensorFlow, PyTorch and ONNX each contain their own Protobuf, and so does the library's plugin."""
    path = tmp_path / "trace.pb.json"
    torch = HERE.parents[1] / ".venv-torch/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    others, trace = OTHERS.replace("TORCH", repr(str(torch))), TRACE.replace("PATH", repr(str(path)))
    done = run("-c", others + trace if first == "frameworks" else trace + others, fresh=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "weights" in path.read_text()


MEETS = """
import os
if os.environ["RANK"] == "0":
    import tensorflow
import hccl, numpy

with hccl.init() as comm:
    sums = numpy.array([comm.rank + 1], numpy.float32)
    comm.allreduce(sums)
    print(sums[0])
"""


def test_ranks_with_and_without_tensorflow_meet():
    """TensorFlow exports its own cryptography under the names of OpenSSL's functions."""
    assert [output.split()[-1] for output in on_ranks(2, "-c", MEETS, fresh=True)] == ["3.0", "3.0"]


def test_import_is_quick_and_silent():
    text = (
        "import os, tensorflow; a = os.times(); import npu_device; b = os.times()\n"
        "print(b.user + b.system - a.user - a.system)"
    )
    done = run("-c", text, fresh=True)
    assert float(done.stdout) < 0.3, done.stdout  # seconds of processor time
    assert not re.search("^hccl[ :]", done.stderr, re.MULTILINE), done.stderr  # the library's messages begin so
