"""The collectives of communicators."""

from __future__ import annotations

import array as arrays
import math
from typing import Optional, Sequence, TypeVar

from hccl import _hccl
from hccl._arguments import check_counts, check_finite, check_number, check_op
from hccl._results import empty_like, part_of, shape_of
from hccl.handle import Handle

Array = TypeVar("Array")


class Collectives:
    """The operations that all ranks of a communicator call together. hccl.Communicator inherits
    them, and its documentation lists the reductions."""

    _native: _hccl.Communicator

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self._native.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._native.size

    def allreduce(
        self,
        array: Array,
        op: str = "sum",
        out: Optional[Array] = None,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Array:
        """Reduces the arrays of all ranks. Stores the result in `out`, which must have the same
        number of elements, or without `out` in `array`. Returns the array with the result."""
        factors = _factors(prescale, postscale)
        self._native.all_reduce(array, check_op(op), out, *factors, True)
        return array if out is None else out

    def iallreduce(
        self,
        array: Array,
        op: str = "sum",
        out: Optional[Array] = None,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle[Array]:
        """allreduce() that returns a handle at once."""
        factors = _factors(prescale, postscale)
        begun = self._native.all_reduce(array, check_op(op), out, *factors, False)
        return Handle(begun, array if out is None else out, "iallreduce", self)

    def reduce(
        self,
        array: Array,
        op: str = "sum",
        root: int = 0,
        out: Optional[Array] = None,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Optional[Array]:
        """Reduces the arrays of all ranks. On the root, stores the result in `out`, or without
        `out` in `array`, and returns that array. On other ranks, `array` does not change, and
        reduce() returns None."""
        factors, root = _factors(prescale, postscale), check_number("root", root)
        self._native.reduce(array, check_op(op), root, out, *factors, True)
        return self._on(root, array if out is None else out)

    def ireduce(
        self,
        array: Array,
        op: str = "sum",
        root: int = 0,
        out: Optional[Array] = None,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle[Optional[Array]]:
        """reduce() that returns a handle at once."""
        factors, root = _factors(prescale, postscale), check_number("root", root)
        begun = self._native.reduce(array, check_op(op), root, out, *factors, False)
        return Handle(begun, self._on(root, array if out is None else out), "ireduce", self)

    def reduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        out: Optional[Array] = None,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Array:
        """Reduces the arrays of all ranks. Returns this rank's part of the result along the first
        dimension: (size * n, ...) gives (n, ...)."""
        out = self._reduced_part(array, out)
        factors = _factors(prescale, postscale)
        self._native.reduce_scatter(array, check_op(op), out, *factors, True)
        return out

    def ireduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        out: Optional[Array] = None,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle[Array]:
        """reduce_scatter() that returns a handle at once."""
        out = self._reduced_part(array, out)
        factors = _factors(prescale, postscale)
        begun = self._native.reduce_scatter(array, check_op(op), out, *factors, False)
        return Handle(begun, out, "ireduce_scatter", self)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Copies the root's array into every rank's array, and returns that array."""
        self._native.broadcast(array, check_number("root", root), True)
        return array

    def ibroadcast(self, array: Array, root: int = 0) -> Handle[Array]:
        """broadcast() that returns a handle at once."""
        begun = self._native.broadcast(array, check_number("root", root), False)
        return Handle(begun, array, "ibroadcast", self)

    def allgather(self, array: Array, out: Optional[Array] = None) -> Array:
        """Returns the arrays of all ranks, concatenated along the first dimension: (n, ...) gives
        (size * n, ...)."""
        out = self._gathered(array, out)
        self._native.all_gather(array, out, True)
        return out

    def iallgather(self, array: Array, out: Optional[Array] = None) -> Handle[Array]:
        """allgather() that returns a handle at once."""
        out = self._gathered(array, out)
        return Handle(self._native.all_gather(array, out, False), out, "iallgather", self)

    def scatter(
        self, array: Optional[Array], root: int = 0, out: Optional[Array] = None
    ) -> Array:
        """Cuts the root's array along the first dimension and gives each rank its part. `array` is
        needed only on the root; `out` is needed on all other ranks."""
        out = self._scattered(array, root, out)
        self._native.scatter(array, check_number("root", root), out, True)
        return out

    def iscatter(
        self, array: Optional[Array], root: int = 0, out: Optional[Array] = None
    ) -> Handle[Array]:
        """scatter() that returns a handle at once."""
        out = self._scattered(array, root, out)
        begun = self._native.scatter(array, check_number("root", root), out, False)
        return Handle(begun, out, "iscatter", self)

    def alltoall(self, array: Array, out: Optional[Array] = None) -> Array:
        """Sends part d of the array (along the first dimension) to rank d. Returns the parts that
        this rank received, in the order of their senders. `out` must not be `array`."""
        out = self._exchanged(array, out)
        self._native.all_to_all(array, out, True)
        return out

    def ialltoall(self, array: Array, out: Optional[Array] = None) -> Handle[Array]:
        """alltoall() that returns a handle at once."""
        out = self._exchanged(array, out)
        return Handle(self._native.all_to_all(array, out, False), out, "ialltoall", self)

    def alltoallv(
        self,
        array: Array,
        send_counts: Sequence[int],
        recv_counts: Optional[Sequence[int]] = None,
        out: Optional[Array] = None,
    ) -> Array:
        """Sends send_counts[d] rows (along the first dimension) to rank d; these parts lie one
        after another in the array. Returns recv_counts[s] rows from each rank s, in the order of
        ranks. Either all ranks pass recv_counts, or none does; without recv_counts, ranks exchange
        the counts first."""
        sent = check_counts("send_counts", send_counts, self.size)
        if recv_counts is None:
            if self._native.in_group:
                raise ValueError("recv_counts: is needed inside a group")
            row = math.prod(shape_of(array)[1:])
            self._native.check_sent(array, [n * row for n in sent], out)
            told = arrays.array("Q", bytes(8 * self.size))
            self._native.all_to_all(arrays.array("Q", sent), told, True)
            try:
                return self._alltoallv(array, sent, told, out, True)[0]
            except ValueError as error:  # the length of `out` can be checked only now
                self._native.refuse(f"alltoallv: {error}")
                raise
        return self._alltoallv(array, sent, recv_counts, out, True)[0]

    def ialltoallv(
        self,
        array: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        out: Optional[Array] = None,
    ) -> Handle[Array]:
        """alltoallv() that returns a handle at once."""
        result, begun = self._alltoallv(array, send_counts, recv_counts, out, False)
        return Handle(begun, result, "ialltoallv", self)

    def barrier(self) -> None:
        """Returns after every rank has called it."""
        self._native.barrier(True)

    def ibarrier(self) -> Handle[None]:
        """barrier() that returns a handle at once."""
        return Handle(self._native.barrier(False), None, "ibarrier", self)

    # ---- the calls, and the arrays for their results ----

    def _alltoallv(
        self,
        array: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        out: Optional[Array],
        blocking: bool,
    ) -> tuple[Array, Optional[_hccl.PendingRequest]]:
        sent = check_counts("send_counts", send_counts, self.size)
        received = check_counts("recv_counts", recv_counts, self.size)
        columns = shape_of(array)[1:]
        row = math.prod(columns)
        if out is None:
            out = empty_like(array, (sum(received), *columns))
        give, take = ([n * row for n in counts] for counts in (sent, received))
        return out, self._native.all_to_all_v(array, give, take, out, blocking)

    def _on(self, root: int, result: Array) -> Optional[Array]:
        return result if self.rank == root else None

    def _reduced_part(self, array: Array, out: Optional[Array]) -> Array:
        return empty_like(array, part_of(array, self.size)) if out is None else out

    def _gathered(self, array: Array, out: Optional[Array]) -> Array:
        if out is not None:
            return out
        rows, *rest = shape_of(array) or (1,)
        return empty_like(array, (rows * self.size, *rest))

    def _scattered(self, array: Optional[Array], root: int, out: Optional[Array]) -> Array:
        if self.rank == check_number("root", root) and array is None:
            raise ValueError("array: is None on the root")
        if out is not None:
            return out
        if array is None or self.rank != root:
            raise ValueError("out: is needed on every rank but the root")
        return empty_like(array, part_of(array, self.size))

    def _exchanged(self, array: Array, out: Optional[Array]) -> Array:
        if out is not None:
            return out
        part_of(array, self.size)
        return empty_like(array, shape_of(array))


def _factors(prescale: float, postscale: float) -> tuple[float, float]:
    return check_finite("prescale", prescale), check_finite("postscale", postscale)
