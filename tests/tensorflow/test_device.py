"""npu_device on one worker: its checks, its state and its messages."""

import logging
import os

import npu_device as npu
import pytest
import tensorflow as tf
from conftest import run
from hccl.tensorflow import _log
from npu_device import _loop


def after_open(environment):
    return run("-c", "import npu_device as npu; npu.open()", **environment).stderr


@pytest.mark.parametrize(
    "environment, error",
    [
        ({"RANK_SIZE": "2", "CM_WORKER_SIZE": "2"}, "ValueError: RANK_SIZE and CM_WORKER_SIZE"),
        ({"RANK_SIZE": "2"}, "RuntimeError: Failed open npu device 0: RANK_SIZE or CM_WORKER_SIZE says"),
        (
            {"RANK_SIZE": "2", "CM_CHIEF_IP": "127.0.0.1"},
            "environment variable CM_CHIEF_IP asks for a start by a chief, which this library does not have",
        ),
        ({"RANK_SIZE": "2", "RANK_TABLE_FILE": "no"}, "RuntimeError: RANK_ID is not set"),
        (
            {"RANK_SIZE": "2", "RANK_TABLE_FILE": "no", "CM_CHIEF_IP": "::1"},
            "RuntimeError: CM_CHIEF_IP and RANK_TABLE_FILE",
        ),
        (
            {"RANK_SIZE": "2", "RANK_TABLE_FILE": "/no/table", "RANK_ID": "0"},
            "RuntimeError: Failed open npu device 0: ",
        ),
    ],
)
def test_open_says_what_is_wrong(environment, error):
    assert error in after_open(environment)


def test_one_worker_needs_nothing():
    handle = npu.open().as_default()
    assert (handle.workers_num, handle.worker_id) == (1, 0) and not handle.is_cluster_worker()
    with pytest.raises(RuntimeError, match="device 0 is open already"):
        npu.open(1)
    values, data = [tf.ones([2])], tf.data.Dataset.range(4)
    assert npu.distribute.all_reduce(values) is values
    assert npu.distribute.broadcast(values) is None
    assert npu.distribute.shard_and_rebatch_dataset(data, 3) == (data, 3)
    optimizer = npu.distribute.npu_distributed_keras_optimizer_wrapper("sgd")
    weight = tf.Variable(1.0)
    optimizer.apply_gradients([(tf.constant(100.0), weight)])
    assert weight.numpy() == 0.0


def test_loop_size(caplog):
    assert npu.set_npu_loop_size(3) is None and _loop.size() == 3
    with caplog.at_level(logging.ERROR, logger="absl"):
        npu.set_npu_loop_size(0)
    assert "must be greater than 0, got 0" in caplog.text and _loop.size() == 3
    for wrong in ("3", 3.0, None, True):
        with pytest.raises(TypeError):
            npu.set_npu_loop_size(wrong)


@pytest.mark.parametrize("text, size", [("30", 30), ("0", 1), ("-2", 1), ("many", 1)])
def test_loop_size_of_the_environment(text, size):
    done = run("-c", "from npu_device import _loop; print(_loop.size())", NPU_LOOP_SIZE=text)
    assert done.stdout.strip() == str(size)
    assert ("must be greater than 0" in done.stderr) == (text in ("0", "-2"))


def test_a_loop_runs_the_steps_that_it_is_told(caplog):
    count = tf.Variable(0)

    @npu.npu_compat_function
    def loop(iterator, steps):
        for _ in tf.range(steps):
            count.assign_add(tf.cast(next(iterator), tf.int32))

    _log._said.clear()
    npu.set_npu_loop_size(4)
    ones = iter(tf.data.Dataset.from_tensors(1).repeat(10))
    with caplog.at_level(logging.WARNING, logger="absl"):
        loop(ones, tf.constant(4))
        assert not caplog.records
        loop(ones, tf.constant(2))
        loop(ones, tf.constant(2))
    assert count.numpy() == 8
    assert len(caplog.records) == 1 and "2 steps" in caplog.text and "run 4" in caplog.text
    with pytest.raises(tf.errors.OutOfRangeError):
        loop(ones, tf.constant(4))


def test_functions_stay_what_they_are():
    class Net(tf.Module):
        @npu.npu_compat_function(jit_compile=True)
        def double(self, x):
            """Twice."""
            return 2 * x

    assert Net().double(tf.constant(2)).numpy() == 4
    function = npu.npu_compat_function(lambda x: x + 1)
    assert function.get_concrete_function(tf.constant(1))(tf.constant(1)).numpy() == 2


def test_options():
    options = npu.global_options()
    assert options.hcom_parallel is True and options.precision_mode is None
    options.precision_mode = "allow_mix_precision"
    options.auto_tune_mode = "RL,GA"
    options.profiling_config.enable_profiling = True
    options.experimental.logical_device_cluster_deploy_mode = "LB"
    assert npu.global_options().precision_mode == "allow_mix_precision"
    with pytest.raises(ValueError, match="nothing is not available"):
        options.nothing = 1
    with pytest.raises(ValueError, match="not allowed for graph_run_mode"):
        options.graph_run_mode = 2
    options.precision_mode = None


def test_small_things():
    x = tf.constant([-1.0, 0.5, 2.0])
    assert tf.reduce_all(npu.ops.gelu(x) == tf.nn.gelu(x, approximate=True))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = npu.gen_npu_ops.fast_gelu(x)
    slope = npu.gen_npu_ops.fast_gelu_grad(tf.ones(3), x)
    tf.debugging.assert_near(slope, tape.gradient(y, x), atol=1e-6)
    mask = npu.gen_npu_ops.drop_out_gen_mask_v3([1000], 0.75, seed=1)
    assert 650 < int(tf.reduce_sum(tf.cast(mask, tf.int32))) < 850
    kept = npu.gen_npu_ops.drop_out_do_mask_v3(tf.ones([1000]), mask, 0.5)
    assert set(kept.numpy()) == {0.0, 2.0}
    with npu.keep_dtype_scope(), npu.npu_recompute_scope(), npu.npu_run_context():
        pass
    assert npu.is_inf_nan_enabled()
    npu.set_device_sat_mode(0)
    assert not npu.is_inf_nan_enabled()
    npu.set_device_sat_mode(1)
    with pytest.raises(NotImplementedError, match="remote_read"):
        npu.distribute.hccl_ops.remote_read(None, None)
    assert os.environ.get("NPU_LOOP_SIZE") is None
