"""Communicators: joining, collectives, leaving.

An array is anything contiguous with the buffer protocol, DLPack (CPU) or __array_interface__:
numpy, torch, bytearray, memoryview, … Its memory is used where it lies, never copied. Elements are
int8 to int64, uint8 to uint64, float16, bfloat16, float32 or float64.

An invalid argument is refused before anything is sent: TypeError or ValueError, naming the
argument. A failure of the library is an HcclError. Operations release the GIL, and Ctrl-C ends the
wait for other ranks; after that the communicator cannot be used any more.
"""

import os

from hccl import _hccl


class Communicator:
    """An ordered set of ranks, as one of them. All ranks call the same operations in the same
    order. Used by one thread at a time. Leave with destroy(), or use it in a `with` statement."""

    def __init__(self, native):
        """For this module: see init(), from_root_info() and from_rank_table()."""
        self._native = native

    @classmethod
    def from_root_info(cls, info, size, rank):
        """Joins `size` ranks, which all call this with the bytes of one rank's root_info()."""
        _check_number("size", size)
        _check_number("rank", rank)
        return cls(_hccl.Communicator.from_root_info(bytes(info), size, rank))

    @classmethod
    def from_rank_table(cls, path, rank):
        """Joins the ranks of a rank table file; `rank` is the rank_id."""
        _check_number("rank", rank)
        return cls(_hccl.Communicator.from_rank_table(os.fspath(path), rank))

    @classmethod
    def from_group(cls, group):
        """The communicator of a group made by hccl.manage.api.create_group, with which it
        ends."""
        return cls(_hccl.Communicator.from_group(group))

    @property
    def rank(self):
        """The number of this rank, from 0."""
        return self._native.rank

    @property
    def size(self):
        """The number of ranks."""
        return self._native.size

    @property
    def name(self):
        return self._native.name

    def allreduce(self, array, op="sum", out=None):
        """Reduces the arrays of all ranks with op ("sum", "prod", "max" or "min"). The result is in
        `out`, or in `array` itself. Returns the array with the result."""
        self._native.all_reduce(array, op, out)
        return array if out is None else out

    def broadcast(self, array, root=0):
        """Copies the root's array into every rank's array, which is returned."""
        self._native.broadcast(array, _rank("root", root))
        return array

    def allgather(self, array, out=None):
        """Returns the arrays of all ranks, concatenated along the first dimension."""
        if out is None:
            shape = _shape(array)
            rows = shape[0] if shape else 1
            out = _empty_like(array, (rows * self.size, *shape[1:]))
        self._native.all_gather(array, out)
        return out

    def reduce_scatter(self, array, op="sum", out=None):
        """Reduces the arrays of all ranks. Returns this rank's part along the first dimension."""
        if out is None:
            out = _empty_like(array, self._part(array))
        self._native.reduce_scatter(array, op, out)
        return out

    def reduce(self, array, op="sum", root=0, out=None):
        """Reduces the arrays of all ranks. On the root the result is in `out`, or in `array`
        itself, and is returned; the other ranks' arrays do not change, and None is returned."""
        self._native.reduce(array, op, _rank("root", root), out)
        if self.rank != root:
            return None
        return array if out is None else out

    def scatter(self, array, root=0, out=None):
        """Cuts the root's array along the first dimension, and gives each rank its part. Only the
        root can do without `out`; only the root needs `array`."""
        root = _rank("root", root)
        if self.rank == root and array is None:
            raise ValueError("array: is None on the root")
        if out is None:
            if self.rank != root:
                raise ValueError("out: is needed on every rank but the root")
            out = _empty_like(array, self._part(array))
        self._native.scatter(array, root, out)
        return out

    def alltoall(self, array, out=None):
        """Gives part d of the array (along the first dimension) to rank d. Returns the parts for
        this rank in the order of the ranks that gave them."""
        if out is None:
            self._part(array)
            out = _empty_like(array, _shape(array))
        self._native.all_to_all(array, out)
        return out

    def send(self, array, dest):
        """Gives the array to rank `dest`, which calls recv(); returns when it has joined."""
        self._native.send(array, _rank("dest", dest))

    def recv(self, array, src):
        """Fills the array with the data of rank `src`. Returns the array."""
        self._native.recv(array, _rank("src", src))
        return array

    def barrier(self):
        """Returns when every rank has called it."""
        self._native.barrier()

    def destroy(self):
        """Leaves. A second call does nothing. Leaving the world also ends all groups and removes
        all split strategies."""
        self._native.destroy()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.destroy()

    def __repr__(self):
        return f"<hccl.Communicator {self.name}: rank {self.rank} of {self.size}>"

    def _part(self, array):
        """The shape of one rank's part of the array."""
        shape = _shape(array)
        rows = shape[0] if shape else 1
        if rows % self.size != 0:
            raise ValueError(
                f"array: its first dimension is {rows}, not a multiple of the {self.size} ranks"
            )
        return (rows // self.size, *shape[1:])


def init():
    """Joins the world that a launcher started: the rank table that RANK_TABLE_FILE names, mpirun,
    torchrun or Slurm; a program started alone is a world of one. Once in a program."""
    return Communicator(_hccl.Communicator.join_by_launcher())


def init_from_rank_table(path, rank):
    """Joins the world that a rank table file describes; `rank` is the rank_id."""
    _check_number("rank", rank)
    return Communicator(_hccl.Communicator.join_by_rank_table(os.fspath(path), rank))


def root_info():
    """Called on one rank: the bytes that all ranks need for Communicator.from_root_info(). They
    hold the secret of the communicator: treat them as a password."""
    return _hccl.root_info()


def _check_number(argument, value):
    if not isinstance(value, int):
        raise TypeError(f"{argument}: expected an int, not {type(value).__name__}")
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{argument}: is {value}, not 0 to 4294967295")


def _rank(argument, value):
    if hasattr(value, "__index__"):
        value = value.__index__()
    _check_number(argument, value)
    return value


def _shape(array):
    """The shape of an array of any kind."""
    shape = getattr(array, "shape", None)
    if shape is None:
        try:
            shape = memoryview(array).shape
        except TypeError:
            raise TypeError(f"array: expected an array, not {type(array).__name__}") from None
    return tuple(shape)


def _empty_like(array, shape):
    """A new array of the same kind and element type."""
    if hasattr(array, "new_empty"):  # torch
        return array.new_empty(shape)
    import numpy as np  # here: a program with arrays of its own needs no numpy

    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.asarray(memoryview(array)).dtype
        except TypeError:
            dtype = np.asarray(array).dtype
    return np.empty(shape, dtype)
