"""Communicators: joining, operations, leaving.

An array is any contiguous object with the buffer protocol, DLPack (CPU) or `__array_interface__`:
numpy, torch, bytearray, memoryview, … Operations work on the array's own memory, not on a copy.
Elements are bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64 or, from
ml_dtypes, float8_e4m3fn, float8_e5m2 and float8_e8m0fnu. Arrays of hccl.empty() are the fastest.

A method without `i` returns when its operation is done. Its twin with `i` (iallreduce, irecv, …)
returns an hccl.Handle at once; the handle's wait() returns the result of the blocking method.
Operations of a communicator run in the order of the calls.

An invalid argument raises TypeError or ValueError with its name, before anything is sent. A root or
peer out of range, a reduction that the type lacks, and memory that overlaps raise HcclError, on this
rank alone. Any other failure raises HcclError on all ranks. Operations release the GIL, and Ctrl-C
ends the wait for other ranks. After Ctrl-C in a collective without `i` the communicator cannot be
used any more. A child of fork() cannot use it either.
"""

from __future__ import annotations

import array as arrays
import contextlib
import os
import threading
import weakref
from typing import Any, Iterable, Iterator, Optional, Sequence, TypeVar, Union

from hccl import _hccl
from hccl._arguments import MAX_RANK, MAX_TAG, check_number, check_path, check_timeout
from hccl._checks import check_group
from hccl.collectives import Collectives
from hccl.errors import HcclError
from hccl.handle import Handle

Array = TypeVar("Array")

_next_sub_id = 0  # the next number unused here; split() takes the largest such number of all ranks


class Communicator(Collectives):
    """One rank's access to an ordered set of ranks. All ranks call the same collectives in the same
    order. One thread at a time may use a communicator; only messages (send, recv and twins),
    abort() and handles are for any thread. Leave with destroy(), or use a `with` statement.

    Reductions are "sum", "prod", "max", "min", "avg" (of integers: the sum divided towards zero),
    "band", "bor", "bxor" (bitwise, of integers and bools), "land", "lor" and "lxor" (logical, of
    integers and bools). With "sum" and "avg" of floats every input is multiplied by `prescale`, and
    the result by `postscale`.
    """

    def __init__(
        self,
        native: _hccl.Communicator,
        world: Optional[_hccl.Communicator] = None,
        world_ranks: Optional[Sequence[int]] = None,
    ) -> None:
        """Only this module calls the constructor. Programs call hccl.init(), from_root_info(),
        from_rank_table() or split()."""
        if not isinstance(native, _hccl.Communicator):
            raise TypeError("a communicator is made by hccl.init(), from_root_info() and others")
        self._native = native
        self._world = native if world is None else world
        self._world_ranks = range(native.size) if world_ranks is None else world_ranks
        self._group: Optional[_Group] = None
        self._subs: weakref.WeakSet[Communicator] = weakref.WeakSet()

    @classmethod
    def from_root_info(cls, info: bytes, size: int, rank: int) -> Communicator:
        """Joins `size` ranks. All of them call this with the bytes of one rank's root_info()."""
        if not isinstance(info, (bytes, bytearray, memoryview)):
            raise TypeError(f"info: expected bytes, not {type(info).__name__}")
        check_number("size", size)
        check_number("rank", rank)
        return cls(_hccl.Communicator.from_root_info(bytes(info), size, rank))

    @classmethod
    def from_rank_table(cls, path: Union[str, os.PathLike[str]], rank: int) -> Communicator:
        """Joins the ranks of a rank table file; `rank` is the rank_id."""
        check_number("rank", rank)
        return cls(_hccl.Communicator.from_rank_table(check_path(path), rank))

    @classmethod
    def from_group(cls, group: str) -> Communicator:
        """Returns the communicator of a group that hccl.manage.api.create_group made. The
        communicator ends with the group."""
        check_group(group)
        native = _hccl.Communicator.from_group(group)
        ranks = [_hccl.get_world_rank_from_group_rank(group, rank) for rank in range(native.size)]
        return cls(native, _hccl.Communicator.from_group(_hccl.WORLD), ranks)

    # ---- properties ----

    @property
    def name(self) -> str:
        """The name that error texts and logs use."""
        return self._native.name

    @property
    def timeout(self) -> Optional[float]:
        """The seconds that each later collective may take, or None for no limit. The initial value
        is HCCL_EXEC_TIMEOUT. After a collective that took longer all ranks get an HcclError (code
        9), and the communicator has failed. The limit does not apply to messages."""
        return self._native.timeout / 1000 or None

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        limit = check_timeout("timeout", seconds)
        if limit == 0:
            raise ValueError("timeout: is 0 s; None is no limit")
        self._native.timeout = 0 if limit is None else max(1, round(limit * 1000))

    def __repr__(self) -> str:
        state = "" if self._native.usable else ", not usable any more"
        return f"<hccl.Communicator {self.name}: rank {self.rank} of {self.size}{state}>"

    # ---- messages ----

    def send(self, array: Any, dest: int, tag: int = 0) -> None:
        """Sends the array to rank `dest`, which must call recv() or irecv() with an array of as
        many bytes and the same tag. If the array is short, send() may return before the receive.
        `dest` may be this rank if it has called irecv() before.

        Messages between two ranks with the same tag arrive in order, independent of other messages
        and of collectives."""
        messages = self._messages_of_group()
        self._wait(self.isend(array, dest, tag), messages)

    def isend(self, array: Any, dest: int, tag: int = 0) -> Handle[None]:
        """send() that returns a handle at once. The library keeps the array alive until the message
        is sent, even if the program does not wait."""
        dest = check_number("dest", dest)
        return Handle(self._native.send(array, dest, _tag(tag)), None, "isend", self)

    def recv(self, array: Array, src: int, tag: int = 0) -> Array:
        """Fills the array with the oldest message with this tag from rank `src`, or from any rank
        (hccl.ANY_RANK). Returns the array. If the array and the message differ in length, both
        ranks get an HcclError. To learn the sender's rank, use irecv()."""
        messages = self._messages_of_group()
        self._wait(self.irecv(array, src, tag), messages)
        return array

    def irecv(self, array: Array, src: int, tag: int = 0) -> Handle[Array]:
        """recv() that returns a handle at once. The handle's `source` is the rank of the sender."""
        if src == -1:  # means any rank in other libraries
            raise ValueError("src: is -1; any rank is hccl.ANY_RANK")
        src = check_number("src", src)
        return Handle(self._native.recv(array, src, _tag(tag)), array, "irecv", self)

    # ---- groups of operations, sub-communicators ----

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Runs the operations of a `with` block together at its end: sends and receives in any
        order, collectives one after another. Either all collectives are accepted or none runs.

            with comm.group():
                comm.send(mine, right)
                comm.recv(theirs, left)

        The results are available after the block. An exception in the block drops its collectives,
        but its messages are already under way. Messages of other threads are not part of the
        group."""
        group = _Group([])
        with self._collecting(group):
            yield
        self._native.end_group(True)
        for handle in group.messages or ():
            handle.wait()

    @contextlib.contextmanager
    def igroup(self) -> Iterator[Handle[None]]:
        """Like group(), but for collectives only, and the end of the block does not wait:

            with comm.igroup() as handle:
                comm.allreduce(a)
                comm.allreduce(b)
            ...
            handle.wait()
        """
        handle: Handle[None] = Handle(None, None, "igroup", self)
        with self._collecting(_Group(None)):
            yield handle
        handle._pending = self._native.end_group(False)

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Returns a communicator of the ranks that pass the same color, ordered by `key`, and by
        rank if keys are equal. All ranks must call it. A color is 0 or more; a rank that passes
        None takes no part and gets None.

        The new communicator may be split, too. Destroy it before the world; the end of the world
        also ends it."""
        if self._native.in_group:
            raise ValueError("split: is not possible inside a group")
        mine = -1 if color is None else check_number("color", color)
        key = check_number("key", key, -(1 << 31), MAX_RANK)
        global _next_sub_id
        table = arrays.array("q", bytes(8 * 3 * self.size))
        self._native.all_gather(arrays.array("q", [mine, key, _next_sub_id]), table, True)
        colors, keys, ids = table[0::3], table[1::3], table[2::3]
        all_colors = sorted({each for each in colors if each >= 0})
        first_id = max(ids)
        _next_sub_id = max(_next_sub_id, first_id + len(all_colors))
        if color is None:
            return None
        members = [rank for rank in range(self.size) if colors[rank] == mine]
        members.sort(key=lambda rank: (keys[rank], rank))
        ranks = [self._world_ranks[rank] for rank in members]
        sub_id = first_id + all_colors.index(mine)
        made = self._world.sub(ranks, members.index(self.rank), sub_id)
        sub = Communicator(made, self._world, ranks)
        sub._subs = self._subs  # the subgroups of the world
        self._subs.add(sub)
        return sub

    def shrink(self, exclude: Iterable[int] = ()) -> Communicator:
        """Returns a communicator of the living ranks, in their old order, after other ranks died.
        All living ranks must call it, except those in `exclude`, which the new communicator leaves
        out. Works on a failed communicator, too. The old communicator may be destroyed at any time
        without effect on the new one.

            try:
                comm.allreduce(array)
            except hccl.HcclError:
                smaller = comm.shrink()
                comm.destroy()
                comm = smaller

        If another rank dies during the call, the new communicator's first operation fails: shrink
        the new communicator. HcclError (code 9) names living ranks that did not call shrink()
        within HCCL_CONNECT_TIMEOUT."""
        excluded = [check_number("exclude", rank) for rank in exclude]
        return Communicator(self._native.shrink(excluded))

    # ---- the end ----

    def abort(self, reason: object = "") -> None:
        """Ends the communicator on all ranks within a second: running and later operations raise an
        HcclError with this rank and str(reason). May be called from any thread. destroy() must
        follow."""
        self._native.abort(str(reason).encode("utf-8", "backslashreplace").decode())

    def destroy(self) -> None:
        """Waits for collectives under way, lets messages under way fail, and leaves. A second call
        does nothing. Leaving the world also ends all groups and all communicators that split() made
        from the world, and removes all split strategies."""
        if self._native is self._world:
            for sub in list(self._subs):
                sub.destroy()
        self._native.destroy()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], *_: object
    ) -> None:
        """Calls destroy(). After an exception, calls abort() first, because other ranks might never
        complete the operations that are under way."""
        try:
            if kind is not None and self._native.under_way():
                with contextlib.suppress(HcclError):  # destroyed already
                    self.abort(f"left by {kind.__name__}: {error}")
        finally:
            self.destroy()

    @contextlib.contextmanager
    def _collecting(self, group: _Group) -> Iterator[None]:
        self._native.begin_group()
        self._group = group
        try:
            yield
        except BaseException:
            self._native.drop_group()
            raise
        finally:
            self._group = None

    def _messages_of_group(self) -> Optional[list[Handle[Any]]]:
        """Returns the messages of the group that this thread has open, or None if it has no open
        group."""
        group = self._group
        if group is None or group.thread != threading.get_ident():
            return None
        if group.messages is None:
            raise ValueError("the group: of igroup() has only collectives; see isend(), irecv()")
        return group.messages

    @staticmethod
    def _wait(message: Handle[Any], messages: Optional[list[Handle[Any]]]) -> None:
        if messages is None:
            message.wait()
        else:
            messages.append(message)


class _Group:
    """An open group: its thread, and the messages to wait for at its end."""

    def __init__(self, messages: Optional[list[Handle[Any]]]) -> None:
        self.thread = threading.get_ident()
        self.messages = messages


def init() -> Communicator:
    """Joins the world that a launcher started: mpirun, torchrun, Slurm, or the rank table that
    RANK_TABLE_FILE names. A program that was started alone is a world of one rank. Call init() once
    in a program."""
    return Communicator(_hccl.Communicator.join_by_launcher())


def init_from_rank_table(path: Union[str, os.PathLike[str]], rank: int) -> Communicator:
    """Joins the world that a rank table file describes; `rank` is the rank_id."""
    check_number("rank", rank)
    return Communicator(_hccl.Communicator.join_by_rank_table(check_path(path), rank))


def root_info() -> bytes:
    """Returns the bytes that all ranks need for Communicator.from_root_info(). One rank calls it.
    The bytes contain the secret of the communicator: treat them as a password."""
    return _hccl.root_info()


def _tag(value: int) -> int:
    return check_number("tag", value, -MAX_TAG - 1, MAX_TAG)
