"""Which arguments are accepted as arrays, and which are refused."""

import array as arrays
import struct

import hccl
import numpy as np
import pytest
from conftest import on_threads


class Dlpack:
    """Offers a numpy array by DLPack only, as torch does."""

    def __init__(self, numbers, device=1, refuse_version=False):
        self.numbers, self.device, self.refuse_version = numbers, device, refuse_version

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **arguments):
        if self.refuse_version and arguments:
            raise TypeError("unexpected keyword")
        return self.numbers.__dlpack__(**arguments)


class OldDlpack(Dlpack):
    """Offers a numpy array by DLPack before version 1, which does not report whether memory is read-only."""

    def __init__(self, numbers):
        super().__init__(numbers, refuse_version=True)

    def __setitem__(self, key, value):
        self.numbers[key] = value


class Interface:
    """Offers memory by __array_interface__ only."""

    def __init__(self, numbers, typestr=None):
        self.numbers = numbers
        self.__array_interface__ = dict(numbers.__array_interface__)
        if typestr:
            self.__array_interface__["typestr"] = typestr


class Bfloat16(Interface):
    """Looks like an array of the package ml_dtypes: 2 opaque bytes, and the name of the type."""

    dtype = "bfloat16"

    def __init__(self, values):
        bits = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
        super().__init__(np.array(bits, np.uint16), "<V2")


@pytest.mark.parametrize(
    "wrap", [lambda a: a, memoryview, Dlpack, Interface, OldDlpack]
)
def test_memory_is_used_where_it_lies(wrap):
    def work(comm):
        numbers = np.arange(12, dtype=np.float32).reshape(3, 4)
        seen = wrap(numbers)
        assert comm.allreduce(seen) is seen
        return numbers

    for numbers in on_threads(2, work):
        np.testing.assert_array_equal(numbers, 2 * np.arange(12).reshape(3, 4))


def test_plain_python_memory():
    def work(comm):
        some_bytes, numbers = bytearray(b"\1\2\3"), arrays.array("d", [comm.rank, 0.5])
        comm.allreduce(some_bytes)
        comm.broadcast(numbers, root=1)
        return bytes(some_bytes), list(numbers), bytes(comm.allgather(b"x"))

    assert on_threads(2, work) == [(b"\2\4\6", [1.0, 0.5], b"xx")] * 2


def test_bfloat16():
    def work(comm):
        values = Bfloat16([1.5, -2.0, 256.0])
        comm.allreduce(values)
        return values.numbers

    for bits in on_threads(2, work):
        np.testing.assert_array_equal(bits, Bfloat16([3.0, -4.0, 512.0]).numbers)


def test_views_and_empty_arrays(alone):
    whole = np.arange(20, dtype=np.int64).reshape(4, 5)
    alone.allreduce(whole[1:3])  # the rows are contiguous
    alone.allreduce(whole[:, :0])
    alone.allreduce(np.zeros((0, 3), np.int8))
    alone.allreduce(np.array(7.0))
    alone.allreduce(np.zeros((1, 4))[:, ::1].T[::1].reshape(4, 1).T)
    np.testing.assert_array_equal(whole, np.arange(20).reshape(4, 5))


@pytest.mark.parametrize("wrap", [lambda a: a, Dlpack, Interface])
@pytest.mark.parametrize("cut", [lambda a: a[:, ::2], lambda a: a.T, lambda a: a[::-1]])
def test_not_contiguous(alone, wrap, cut):
    numbers = wrap(cut(np.zeros((4, 6), np.float32)))
    good = np.zeros(24, np.float32)
    with pytest.raises(ValueError, match="^array: is not contiguous"):
        alone.allreduce(numbers)
    if not isinstance(numbers, np.ndarray):
        return
    with pytest.raises(ValueError, match="^out: is not contiguous"):
        alone.allreduce(good[: numbers.size], out=numbers)


def test_read_only(alone):
    numbers = np.zeros(4, np.float32)
    numbers.flags.writeable = False
    for wrapped in [numbers, Interface(numbers)]:
        with pytest.raises(ValueError, match="^array: is read-only"):
            alone.allreduce(wrapped)
        with pytest.raises(ValueError, match="^array: is read-only"):
            alone.recv(wrapped, 0)
    # Like bfloat16 arrays of JAX and TensorFlow: no DLPack version, and items cannot be assigned.
    with pytest.raises(ValueError, match="^array: is read-only"):
        alone.allreduce(Dlpack(np.zeros(4, np.float32), refuse_version=True))
    with pytest.raises(ValueError, match="^out: is read-only"):
        alone.allreduce(np.zeros(4, np.float32), out=numbers)
    with pytest.raises(ValueError, match="^out: is read-only"):
        alone.allgather(np.zeros(4, np.uint8), out=b"abcd")
    out = np.ones(4, np.float32)
    alone.allreduce(numbers, out=out)  # allowed, as the array is only read
    assert not out.any()


@pytest.mark.parametrize("wrong", [None, 5, "text", [1.0, 2.0], object()])
def test_no_array(alone, wrong):
    for call in [alone.allreduce, alone.broadcast, lambda a: alone.send(a, 0)]:
        with pytest.raises(TypeError, match="array"):
            call(wrong)


@pytest.mark.parametrize("dtype", [complex, ">f4", "S3", "f4,i4", "M8[s]", np.longdouble])
def test_types_that_hccl_does_not_have(alone, dtype):
    with pytest.raises(TypeError, match="^array: the element type .* is not supported"):
        alone.allreduce(np.zeros(3, dtype))


def test_memory_of_another_device(alone):
    with pytest.raises(ValueError, match="^array: is not in the memory of the CPU"):
        alone.allreduce(Dlpack(np.zeros(3), device=2))


def test_out_that_does_not_fit(alone):
    with pytest.raises(ValueError, match="^out: has 3 elements, not 4"):
        alone.allreduce(np.zeros(4), out=np.zeros(3))
    with pytest.raises(ValueError, match="^out: is of float32, array of float64"):
        alone.allgather(np.zeros(4), out=np.zeros(4, np.float32))


def test_out_that_overlaps_in_the_wrong_place(alone):
    array = np.arange(9, dtype=np.float32)
    with pytest.raises(hccl.HcclError, match="AllReduce.*recvBuf.*overlaps sendBuf"):
        alone.allreduce(array[:-1], out=array[1:])
    with pytest.raises(hccl.HcclError, match="overlaps"):
        alone.ialltoall(array[1:], out=array[:-1]).wait()
    assert array.tolist() == list(range(9))
    alone.allreduce(array, out=array)
    assert array.tolist() == list(range(9))


def test_parts_that_do_not_come_out_even():
    def work(comm):
        for call in [comm.reduce_scatter, comm.alltoall]:
            with pytest.raises(ValueError, match="^array: its first dimension is 3"):
                call(np.zeros((3, 2)))
        with pytest.raises(ValueError, match="^array: has 3 elements, not a multiple of the 2"):
            comm.reduce_scatter(np.zeros(3), out=np.zeros(1))

    on_threads(2, work)


def test_other_arguments(alone):
    numbers = np.zeros(2)
    with pytest.raises(ValueError, match='^op: .* not "mean"'):
        alone.allreduce(numbers, op="mean")
    with pytest.raises(TypeError, match="^root: expected an int, not str"):
        alone.broadcast(numbers, root="0")
    with pytest.raises(ValueError, match="^dest: is -1"):
        alone.send(numbers, -1)
    with pytest.raises(hccl.HcclError, match="root is 1") as caught:
        alone.broadcast(numbers, root=1)
    assert caught.value.code == 1
    with pytest.raises(TypeError, match="^a communicator is made by hccl.init"):
        hccl.Communicator(None)
    with pytest.raises(TypeError, match="^info: expected bytes, not str"):
        hccl.Communicator.from_root_info("abc", 1, 0)
    with pytest.raises(ValueError, match="^info: has 3 bytes"):
        hccl.Communicator.from_root_info(b"abc", 1, 0)
    with pytest.raises(ValueError, match="^rank: is -1"):
        hccl.Communicator.from_root_info(hccl.root_info(), 1, -1)
    with pytest.raises(hccl.HcclError, match="rank is 1, nRanks is 1"):
        hccl.Communicator.from_root_info(hccl.root_info(), 1, 1)
    with pytest.raises(hccl.HcclError, match="no-such-file"):
        hccl.Communicator.from_rank_table("/no-such-file.json", 0)
