"""hccl.empty: arrays in device memory."""

import gc
import subprocess
import sys

import hccl
import ml_dtypes
import numpy as np
import pytest
from conftest import environment, on_threads, run_rank_script

MANY = 4 << 20  # bytes


@pytest.mark.parametrize(
    "shape, dtype, expected",
    [
        (5, np.float32, np.float32),
        ((2, 3), "int16", np.int16),
        ([2, 0, 3], float, np.float64),
        ((), bool, np.bool_),
        (np.int64(4), "bfloat16", ml_dtypes.bfloat16),
        ((3,), ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2),
    ],
)
def test_shapes_and_types(shape, dtype, expected):
    array = hccl.empty(shape, dtype)
    reference = np.empty(shape, expected)
    assert (array.shape, array.dtype) == (reference.shape, reference.dtype)
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert (array.astype(float) == 1).all()
    assert hccl.empty(3).dtype == np.float64


def test_views_hold_the_memory():
    before = hccl.memory_info()
    array = hccl.empty((1024, MANY // 1024), np.uint8)
    assert hccl.memory_info().in_use >= before.in_use + MANY
    row = array[7]
    row[:] = 7
    del array
    gc.collect()
    other = hccl.empty(MANY, np.uint8)  # gets other memory: the row keeps its block
    other[:] = 0
    assert (row == 7).all()
    del row, other
    gc.collect()
    after = hccl.memory_info()
    assert after.in_use == before.in_use
    assert after.cached > 0 and after.heap_total >= after.heap_used >= after.cached
    address = hccl.empty(MANY, np.uint8).ctypes.data
    assert hccl.empty(MANY, np.uint8).ctypes.data == address  # the same memory again


def test_arrays_of_all_types_are_reduced():
    def work(comm):
        for dtype in ["float32", "int64", "bfloat16", "float8_e4m3fn", "float16"]:
            array = hccl.empty(1000, dtype)
            array[:] = comm.rank + 1
            assert comm.allreduce(array) is array
            assert (array.astype(float) == 3).all()
            gathered = comm.allgather(array[:10])
            assert gathered.dtype == array.dtype and gathered.shape == (20,)

    on_threads(2, work)


def test_memory_outlives_its_communicator_and_the_interpreter():
    program = (
        "import hccl\n"
        "with hccl.Communicator.from_root_info(hccl.root_info(), 1, 0) as comm:\n"
        "    kept = hccl.empty(1 << 20)\n"
        "    comm.allreduce(kept)\n"
        "kept[:] = 1\n"
        "print(kept.sum())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1048576.0\n", "")


@pytest.mark.parametrize(
    "shape, dtype, error, match",
    [
        (-1, float, ValueError, "^shape: is -1"),
        ((2, 1.5), float, TypeError, "^shape: expected an int, not float"),
        ("ab", float, TypeError, "^shape: expected an int, not str"),
        (3, object, TypeError, "^dtype: object holds Python objects"),
        (3, "bfloat17", TypeError, "^dtype: neither numpy nor ml_dtypes has 'bfloat17'"),
        ((1 << 40, 1 << 40), float, ValueError, "^shape: .* more than any memory"),
        (1 << 55, float, hccl.HcclError, "HcclMemAlloc"),
    ],
)
def test_what_is_refused(shape, dtype, error, match):
    with pytest.raises(error, match=match):
        hccl.empty(shape, dtype)


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_do_not_copy_device_memory(ranks, monkeypatch):
    monkeypatch.setenv("HCCL_CMA", "off")  # the comparison is with memory that is staged
    run_rank_script(ranks, "zero_copy.py")
