"""Communicators: joining, operations, leaving.

An array is anything contiguous with the buffer protocol, DLPack (CPU) or __array_interface__:
numpy, torch, bytearray, memoryview, … Its memory is used where it lies, never copied. Elements are
bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64 or, from ml_dtypes,
float8_e4m3fn, float8_e5m2 and float8_e8m0fnu. Arrays of hccl.empty() are the fastest.

A method without `i` returns when its operation is done. Its twin with `i` (iallreduce, irecv, …)
returns an hccl.Handle at once, whose wait() returns what the other method returns. Operations of a
communicator run in the order of the calls.

An invalid argument is refused before anything is sent: TypeError or ValueError, naming the
argument. A failure of the library is an HcclError. Operations release the GIL, and Ctrl-C ends the
wait for other ranks; if that was in a collective without `i`, the communicator cannot be used any
more. After fork() the child cannot use it either.
"""

from __future__ import annotations

import array as arrays
import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence, TypeVar, Union

from hccl import _hccl
from hccl._arguments import MAX_RANK, MAX_TAG, check_number, check_timeout
from hccl.collectives import Collectives
from hccl.errors import HcclError
from hccl.handle import Handle

if TYPE_CHECKING:
    from types import TracebackType

Array = TypeVar("Array")

_next_sub_id = 0  # of this process; split() agrees on one that no rank has used


class Communicator(Collectives):
    """An ordered set of ranks, as one of them. All ranks call the same collectives in the same
    order. Used by one thread at a time, but for messages (send, recv and twins), abort() and
    handles, which any thread may use. Leave with destroy(), or use it in a `with` statement.

    Reductions are "sum", "prod", "max", "min", "avg" (floats), "band", "bor", "bxor" (bits of
    integers and bools), "land", "lor" and "lxor" (truth of integers and bools). With "sum" and
    "avg" of floats every input is multiplied by `prescale`, and the result by `postscale`.
    """

    def __init__(
        self,
        native: _hccl.Communicator,
        world: Optional[_hccl.Communicator] = None,
        world_ranks: Optional[Sequence[int]] = None,
    ) -> None:
        """For this module: see hccl.init(), from_root_info(), from_rank_table() and split()."""
        if not isinstance(native, _hccl.Communicator):
            raise TypeError("a communicator is made by hccl.init(), from_root_info() and others")
        self._native = native
        self._world = native if world is None else world
        self._world_ranks = range(native.size) if world_ranks is None else world_ranks
        self._group: Optional[_Group] = None
        self._subs: weakref.WeakSet[Communicator] = weakref.WeakSet()

    @classmethod
    def from_root_info(cls, info: bytes, size: int, rank: int) -> Communicator:
        """Joins `size` ranks, which all call this with the bytes of one rank's root_info()."""
        if not isinstance(info, (bytes, bytearray, memoryview)):
            raise TypeError(f"info: expected bytes, not {type(info).__name__}")
        check_number("size", size)
        check_number("rank", rank)
        return cls(_hccl.Communicator.from_root_info(bytes(info), size, rank))

    @classmethod
    def from_rank_table(cls, path: Union[str, os.PathLike[str]], rank: int) -> Communicator:
        """Joins the ranks of a rank table file; `rank` is the rank_id."""
        check_number("rank", rank)
        return cls(_hccl.Communicator.from_rank_table(os.fspath(path), rank))

    @classmethod
    def from_group(cls, group: str) -> Communicator:
        """The communicator of a group made by hccl.manage.api.create_group, with which it
        ends."""
        native = _hccl.Communicator.from_group(group)
        ranks = [_hccl.get_world_rank_from_group_rank(group, rank) for rank in range(native.size)]
        return cls(native, _hccl.Communicator.from_group(_hccl.WORLD), ranks)

    # ---- about it ----

    @property
    def name(self) -> str:
        """The name that error texts and logs use."""
        return self._native.name

    @property
    def timeout(self) -> Optional[float]:
        """How many seconds each collective that begins from now on may take, or None: no limit.
        At first HCCL_EXEC_TIMEOUT. Can be set. After a collective that took longer all ranks get an
        HcclError (code 9), and the communicator has failed. Messages have no limit of their own."""
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
        """Gives the array to rank `dest`, which calls recv() or irecv() with an array of as many
        bytes and the same tag. May return before that if the array is short. `dest` may be this
        rank, if it has called irecv().

        Messages between two ranks with one tag arrive in order; other messages and collectives do
        not matter to them."""
        messages = self._messages_of_group()
        self._wait(self.isend(array, dest, tag), messages)

    def isend(self, array: Any, dest: int, tag: int = 0) -> Handle[None]:
        """send() that returns a handle at once. Of many messages that are not waited for, each
        holds its array until it is done."""
        dest = check_number("dest", dest)
        return Handle(self._native.send(array, dest, _tag(tag)), None, "isend")

    def recv(self, array: Array, src: int, tag: int = 0) -> Array:
        """Fills the array with the oldest message of rank `src`, or of any rank (hccl.ANY_RANK),
        that has this tag. Returns the array. HcclError on both ranks: the array is not as long as
        the message. irecv()'s handle tells who has sent it."""
        messages = self._messages_of_group()
        self._wait(self.irecv(array, src, tag), messages)
        return array

    def irecv(self, array: Array, src: int, tag: int = 0) -> Handle[Array]:
        """recv() that returns a handle at once; its `source` is the rank whose message came."""
        if src == -1:  # of other libraries
            raise ValueError("src: is -1; any rank is hccl.ANY_RANK")
        src = check_number("src", src)
        return Handle(self._native.recv(array, src, _tag(tag)), array, "irecv")

    # ---- several at once ----

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Runs the operations of a `with` block together, when it ends: sends and receives in any
        order, and collectives one behind the other, of which either all are accepted or none runs.

            with comm.group():
                comm.send(mine, right)
                comm.recv(theirs, left)

        Their results are there after the block. An exception in the block drops its collectives;
        messages are under way already. Messages of other threads are not part of the group."""
        group = _Group([])
        with self._collecting(group):
            yield
        self._native.end_group(True)
        for handle in group.messages or ():
            handle.wait()

    @contextlib.contextmanager
    def igroup(self) -> Iterator[Handle[None]]:
        """As group(), for collectives only, without waiting at the end of the block:

            with comm.igroup() as handle:
                comm.allreduce(a)
                comm.allreduce(b)
            ...
            handle.wait()
        """
        handle: Handle[None] = Handle(None, None, "igroup")
        with self._collecting(_Group(None)):
            yield handle
        handle._pending = self._native.end_group(False)

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Called by all ranks: a communicator of the ranks that give the same color, ordered by
        `key`, and by rank where keys are equal. A color of None (0 or more otherwise) is for ranks
        that take no part: they get None.

        It may itself be split. Destroy it before the world, which otherwise ends it, too."""
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
        sub._subs = self._subs  # of the world
        self._subs.add(sub)
        return sub

    # ---- the end ----

    def abort(self, reason: object = "") -> None:
        """Ends the communicator on all ranks, within a second: operations that run, and those that
        come, raise an HcclError with this rank and str(reason). Any thread. destroy() follows."""
        self._native.abort(str(reason))

    def destroy(self) -> None:
        """Leaves, after the collectives that are under way; messages under way fail. A second call
        does nothing. Leaving the world also ends all communicators made by split() from it, all
        groups, and removes all split strategies."""
        if self._native is self._world:
            for sub in list(self._subs):
                sub.destroy()
        self._native.destroy()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """destroy(). With an exception while operations are under way, which other ranks may never
        complete: abort() comes first."""
        if kind is not None and self._native.under_way():
            with contextlib.suppress(HcclError):  # destroyed already
                self.abort(f"left by {kind.__name__}: {error}")
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
        """Where a group that this thread has open keeps its messages."""
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
    """A group that is open: the thread it is for, and the messages to wait for at its end."""

    def __init__(self, messages: Optional[list[Handle[Any]]]) -> None:
        self.thread = threading.get_ident()
        self.messages = messages


def init() -> Communicator:
    """Joins the world that a launcher started: the rank table that RANK_TABLE_FILE names, mpirun,
    torchrun or Slurm; a program started alone is a world of one. Once in a program."""
    return Communicator(_hccl.Communicator.join_by_launcher())


def init_from_rank_table(path: Union[str, os.PathLike[str]], rank: int) -> Communicator:
    """Joins the world that a rank table file describes; `rank` is the rank_id."""
    check_number("rank", rank)
    return Communicator(_hccl.Communicator.join_by_rank_table(os.fspath(path), rank))


def root_info() -> bytes:
    """Called on one rank: the bytes that all ranks need for Communicator.from_root_info(). They
    hold the secret of the communicator: treat them as a password."""
    return _hccl.root_info()


def _tag(value: int) -> int:
    return check_number("tag", value, -MAX_TAG - 1, MAX_TAG)
