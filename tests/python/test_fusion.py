"""Fusion: segments, misuse, and the lifetime of its arrays."""

import csv
import gc
import json
import weakref

import hccl
import numpy as np
import pytest
from conftest import on_threads

SIZES = [5, 1000, 1, 300, 0, 77]


def gradients_of(rank, dtype=np.float32, scattered=True):
    if scattered:
        arrays = [np.zeros(size, dtype) for size in SIZES]
    else:
        flat = np.zeros(sum(SIZES), dtype)
        arrays = np.split(flat, np.cumsum(SIZES)[:-1])
    for i, array in enumerate(arrays):
        array[:] = np.arange(len(array)) % 7 + i + rank
    return arrays


def named(arrays):
    return [(f"g{i}", array) for i, array in enumerate(arrays)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("scattered", [True, False])
@pytest.mark.parametrize("hcom_parallel", [True, False])
@pytest.mark.parametrize("split", [{}, {"split_by_size": [30, 70]}, {"split_by_index": [0, 3, 5]}])
def test_every_gradient_is_summed(dtype, scattered, hcom_parallel, split):
    def work(comm):
        arrays = gradients_of(comm.rank, dtype, scattered)
        with hccl.Fusion(comm, named(arrays), hcom_parallel=hcom_parallel, **split) as fusion:
            assert fusion.segments[-1] == len(SIZES) - 1
            for _ in range(3):
                for array, fresh in zip(arrays, gradients_of(comm.rank, dtype)):
                    array[:] = fresh
                for i in reversed(range(len(SIZES))):  # any order will do
                    fusion.ready(i)
                fusion.wait()
        return arrays

    expected = [a + b for a, b in zip(gradients_of(0, dtype), gradients_of(1, dtype))]
    for arrays in on_threads(2, work):
        for array, right in zip(arrays, expected):
            np.testing.assert_array_equal(array, right)


def test_another_operation():
    def work(comm):
        arrays = gradients_of(comm.rank)
        with hccl.Fusion(comm, named(arrays), op="max") as fusion:
            for i in range(len(SIZES)):
                fusion.ready(i)
            fusion.wait()
        return arrays

    for arrays in on_threads(2, work):
        for array, right in zip(arrays, gradients_of(1)):
            np.testing.assert_array_equal(array, right)


def test_misuse_is_named_and_the_iteration_goes_on(alone):
    with hccl.Fusion(alone, named(gradients_of(0))) as fusion:
        for wrong in [-1, len(SIZES)]:
            with pytest.raises(ValueError, match=f"index: is {wrong}"):
                fusion.ready(wrong)
        fusion.ready(2)
        with pytest.raises(hccl.HcclError, match="g2") as caught:
            fusion.ready(2)
        assert caught.value.code == 1
        for i in [0, 1, 3]:
            fusion.ready(i)
        with pytest.raises(hccl.HcclError, match="g4.*g5"):
            fusion.wait()
        fusion.ready(4)
        fusion.ready(5)
        fusion.wait()
        with pytest.raises(ValueError, match="point: .* not 'lunch'"):
            fusion.mark("lunch")
    fusion.close()
    for call in [fusion.wait, fusion.trace_text, lambda: fusion.ready(0), lambda: fusion.segments]:
        with pytest.raises(hccl.HcclError, match="closed"):
            call()


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "gradients: there are none", {"gradients": []}),
        (TypeError, r"gradients\[0\]: expected a pair", {"gradients": [np.zeros(3)]}),
        (
            TypeError,
            r"gradients\[1\] \(b\): expected an array",
            {"gradients": [("a", np.zeros(3)), ("b", 1)]},
        ),
        (
            ValueError,
            r"gradients\[0\] \(a\): is not contiguous",
            {"gradients": [("a", np.zeros((4, 4))[:, 1])]},
        ),
        (ValueError, r"gradients\[0\] \(a\): is read-only", {"gradients": [("a", b"abc")]}),
        (
            ValueError,
            r"gradients\[1\] \(b\): is of int32, the first of float64",
            {"gradients": [("a", np.zeros(3)), ("b", np.zeros(3, np.int32))]},
        ),
        (ValueError, "give only one", {"split_by_size": [100], "split_by_index": [5]}),
        (ValueError, "split_by_size: is empty", {"split_by_size": []}),
        (ValueError, "split_by_index: is empty", {"split_by_index": []}),
        (ValueError, "split_by_index: .*-1", {"split_by_index": [-1, 5]}),
        (hccl.HcclError, "4", {"split_by_index": [4]}),
        (hccl.HcclError, "100", {"split_by_size": [50, 40]}),
        (ValueError, "^op: ", {"op": "mean"}),
    ],
)
def test_what_cannot_be_fused(alone, error, match, change):
    arguments = {"gradients": named(gradients_of(0)), **change}
    with pytest.raises(error, match=match):
        hccl.Fusion(alone, **arguments)


def test_arrays_live_as_long_as_they_are_used(alone):
    class Watched(np.ndarray):
        pass

    array = np.zeros(1000, np.float32).view(Watched)
    alive = weakref.ref(array)
    fusion = hccl.Fusion(alone, [("a", array)])
    del array
    gc.collect()
    assert alive() is not None
    fusion.ready(0)
    fusion.wait()
    fusion.close()
    gc.collect()
    assert alive() is None


def test_traces(alone, tmp_path):
    with hccl.Fusion(alone, named(gradients_of(0)), split_by_index=[1, 5]) as fusion:
        for _ in range(2):
            fusion.mark("fp_start")
            for i in range(len(SIZES)):
                fusion.ready(i)
            fusion.mark("bp_end")
            fusion.wait()
            fusion.mark("iteration_end")
        lines = [line.split() for line in fusion.trace_text().splitlines()]
        assert {name for _, name in lines} == {
            "fp_start",
            "bp_end",
            "allreduce1_start",
            "allreduce1_end",
            "allreduce2_start",
            "allreduce2_end",
            "iteration_end",
        }
        times = [float(time) for time, _ in lines]
        assert times == sorted(times) and times[0] == 0
        for suffix in ["json", "csv", "pb"]:
            fusion.write_trace(tmp_path / f"trace.{suffix}")
        with pytest.raises(hccl.HcclError, match="no-such-directory"):
            fusion.write_trace("/no-such-directory/trace.json")
        with pytest.raises(ValueError, match="path: contains a NUL"):
            fusion.write_trace("a\0b")
    with pytest.raises(TypeError, match="comm: expected a Communicator, not NoneType"):
        hccl.Fusion(None, [])
    with pytest.raises(ValueError, match="path: contains a NUL"):
        hccl.Communicator.from_rank_table("/nope\0x", 0)
    with pytest.raises(ValueError, match="group: .* has a character"):
        hccl.Communicator.from_group("hccl_world_group\0junk")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = list(csv.reader((tmp_path / "trace.csv").open()))
    assert len(rows) > 2 and len({len(row) for row in rows}) == 1
    assert (tmp_path / "trace.pb").stat().st_size > 0


def test_left_in_the_middle():
    """A rank whose Fusion is deleted between ready() and wait() does not hang."""

    def work(comm):
        fusion = hccl.Fusion(comm, named(gradients_of(0)), hcom_parallel=True)
        fusion.ready(5)
        del fusion
        gc.collect()

    on_threads(1, work)
