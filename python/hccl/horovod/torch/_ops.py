"""Horovod's collectives on tensors. Arguments that several functions have:

name: has no effect, because all ranks call the same collectives in the same order, and the library
compares the calls. op: Average (also if None), Sum, Max, Min or Product. average: True is Average,
False is Sum. The mean of integers is rounded down. prescale_factor multiplies each rank's tensor,
postscale_factor the result. compression: a member of Compression. process_set: the ranks that take
part.

A function with _async returns a Handle for synchronize() and poll(). A function with a _ at the end
works in place. All others return new tensors and are differentiable. Tensors are on the CPU. A
failure raises an hccl.HcclError, which names the cause, on all ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import hccl
import torch
from hccl import _horovod
from hccl._horovod import ProcessSet, global_process_set
from hccl.horovod.torch._shapes import communicator, with_shapes
from torch import Tensor

Average, Sum, Max, Min, Product = _horovod.REDUCTIONS


class Handle:
    """An operation under way. Do not touch its tensors before synchronize()."""

    def __init__(self, parts: Sequence[Any], finish: Callable[[], Any]) -> None:
        """parts: the operations to wait for, each with wait() and done()."""
        self._parts, self._finish = parts, functools.cache(finish)

    def wait(self) -> Any:
        with with_shapes():
            for part in self._parts:
                part.wait()
        return self._finish()

    def done(self) -> bool:
        return all(part.done() for part in self._parts)


def synchronize(handle: Handle) -> Any:
    """Waits for an operation, and returns the result of the function without _async."""
    return handle.wait()


def poll(handle: Handle) -> bool:
    """Returns whether synchronize() would return at once."""
    return handle.done()


class Compression:
    """The types in which tensors are reduced: their own, or one of 16 bits."""

    none, fp16, bf16 = (
        _horovod.Cast(dtype, torch.is_floating_point, Tensor.to)
        for dtype in (None, torch.float16, torch.bfloat16)
    )


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    return tensor if factor == 1.0 else (tensor.double() * factor).to(tensor.dtype)


class _Differentiable(torch.autograd.Function):
    """backward: differentiable, too, so that there are gradients of gradients."""

    @staticmethod
    def forward(ctx: Any, forward: Callable, backward: Callable, tensor: Tensor) -> Any:
        ctx.own = backward
        return forward(tensor.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        return None, None, ctx.own(gradient)


def allreduce_async(
    tensor: Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set, *, into: Tensor | None = None,
) -> Handle:
    """into: the tensor for the result, which may be `tensor`; by default a new one."""
    kind, also = _horovod.reduction(op, average), ""
    scales = tensor.is_floating_point() and kind in ("mean", "sum")  # the library scales
    if not scales:
        also = f" by {kind} {_horovod.factors_text(prescale_factor, postscale_factor)}"
    comm = communicator(process_set, tensor.shape, also)
    source = tensor.detach() if scales else _scaled(tensor.detach(), prescale_factor)
    source = source.contiguous()
    place = into is not None and source.data_ptr() == into.data_ptr()
    result = source if place else torch.empty_like(source)
    called = "avg" if kind == "mean" and scales else "sum" if kind == "mean" else kind
    factors = {"prescale": prescale_factor, "postscale": postscale_factor} if scales else {}
    begun = comm.iallreduce(source, called, result, **factors)

    def finish() -> Tensor:
        value = result
        if not scales:
            value = value.floor_divide_(comm.size) if kind == "mean" else value
            value = _scaled(value, postscale_factor)
        if into is None:
            return value
        if value.data_ptr() != into.data_ptr():
            into.detach().copy_(value)
        return into

    return Handle([begun], finish)


def allreduce_async_(tensor: Tensor, *options: Any, **named: Any) -> Handle:
    return allreduce_async(tensor, *options, **named, into=tensor)


def allreduce(
    tensor: Tensor, average: bool | None = None, name: str | None = None,
    compression: Any = Compression.none, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduces over all ranks. Backward gives each rank the mean of all ranks' gradients if op is
    Average, otherwise their sum."""
    kind = _horovod.reduction(op, average)
    of_gradient = Average if kind == Average else Sum
    scales = (prescale_factor, postscale_factor, process_set)
    packed, context = compression.compress(tensor)
    reduced = _Differentiable.apply(
        lambda own: allreduce_async(own, None, None, kind, *scales).wait(),
        lambda g: allreduce(g, None, None, Compression.none, of_gradient, *scales),
        packed,
    )
    return compression.decompress(reduced, context)


def allreduce_(tensor: Tensor, *options: Any, **named: Any) -> Tensor:
    return allreduce_async_(tensor, *options, **named).wait()


def sparse_allreduce_async(
    tensor: Tensor, name: str | None = None, op: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Tensor]:
    """Returns a function that waits for the sum or the mean of sparse tensors, and returns the
    result."""
    kind = _horovod.reduction(op)
    if kind not in ("mean", "sum"):
        _horovod.refuse("op", op, "sparse tensors can be added and averaged only")
    own = tensor.coalesce()
    whole: dict[str, Any] = {"process_set": process_set, "whole": [*tensor.shape, kind]}
    values = allgather_async(own.values(), **whole)
    indices = allgather_async(own.indices().t().contiguous(), **whole)
    ranks = communicator(process_set).size

    def finish() -> Tensor:
        places = (indices.wait().t(), values.wait(), tensor.size())
        summed = torch.sparse_coo_tensor(*places, check_invariants=False).coalesce()
        if kind == "mean":
            total = summed.values()
            divides = total.is_floating_point() or total.is_complex()
            total.div_(ranks) if divides else total.floor_divide_(ranks)
        return summed

    return finish


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set, *,
    whole: Sequence[Any] = (),
) -> Handle:
    """Concatenates the ranks' tensors along the first dimension. Its length may differ between
    ranks. Waits until all ranks have called allgather_async(). whole: the ranks compare this list,
    too."""
    comm = communicator(process_set, [*whole, "rows", *tensor.shape[1:]])
    own = tensor.detach().contiguous().reshape(tensor.shape or (1,))
    with with_shapes():
        rows = comm.allgather(torch.tensor([len(own)])).tolist()
    padded = own.new_zeros((max(rows), *own.shape[1:]))
    padded[: len(own)] = own
    begun = comm.iallgather(padded, padded.new_empty((comm.size * max(rows), *own.shape[1:])))

    def finish() -> Tensor:
        parts = begun.wait().reshape(comm.size, max(rows), *own.shape[1:])
        return torch.cat([part[:count] for part, count in zip(parts, rows)])

    return Handle([begun], finish)


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Like allgather_async(), but waits. Backward gives each rank the mean gradient of its rows."""
    comm, rows = communicator(process_set), len(tensor) if tensor.dim() else 1

    def own_rows(gradient: Tensor) -> Tensor:
        start = sum(comm.allgather(torch.tensor([rows])).tolist()[: comm.rank])
        mean = allreduce(gradient, op=Average, process_set=process_set)
        return mean[start : start + rows].reshape(tensor.shape)

    return _Differentiable.apply(
        lambda own: allgather_async(own, None, process_set).wait(), own_rows, tensor
    )


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Copies the root's tensor into `tensor`. root_rank: a rank of the world."""
    buffer = tensor.detach().contiguous()
    root = _horovod.root_of(process_set, root_rank)
    begun = communicator(process_set, tensor.shape).ibroadcast(buffer, root)

    def finish() -> Tensor:
        if buffer.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(buffer)
        return tensor

    return Handle([begun], finish)


def broadcast_async(tensor: Tensor, *options: Any, **named: Any) -> Handle:
    return broadcast_async_(tensor.detach().clone(), *options, **named)


def broadcast_(tensor: Tensor, *options: Any, **named: Any) -> Tensor:
    return broadcast_async_(tensor, *options, **named).wait()


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the root's tensor. In backward the root gets the mean gradient, and all other ranks
    get zeros."""
    comm, root = communicator(process_set), _horovod.root_of(process_set, root_rank)

    def to_root(gradient: Tensor) -> Tensor:
        mean = allreduce(gradient, op=Average, process_set=process_set)
        return mean.masked_fill(torch.tensor(comm.rank != root), 0)

    return _Differentiable.apply(
        lambda own: broadcast_async(own, root_rank, None, process_set).wait(), to_root, tensor
    )


def _rows_to_send(tensor: Tensor, splits: Any, comm: hccl.Communicator) -> Tensor:
    """Returns the checked number of rows for each rank. If the arguments are wrong, raises a
    ValueError, and the other ranks get an error with its text."""
    try:
        if tensor.dim() == 0:
            raise ValueError("a tensor without dimensions has no rows")
        rows, ranks = len(tensor), comm.size
        if splits is None and rows % ranks:
            raise ValueError(f"{rows} rows for {ranks} ranks: give splits")
        sent = torch.as_tensor([rows // ranks] * ranks if splits is None else splits)
        exact = not (sent.is_floating_point() or sent.is_complex() or sent.dtype == torch.bool)
        if not exact or sent.shape != (ranks,) or int(sent.min()) < 0:
            raise ValueError(f"splits are {splits}, not a number of rows for each of {ranks} ranks")
        if int(sent.sum()) > rows:
            raise ValueError(f"splits are of {int(sent.sum())} rows, not of at most {rows}")
        return sent.long()
    except Exception as error:
        comm._native.refuse(f"alltoall: {error}")
        raise ValueError(f"hccl: alltoall: {error}") from None


def alltoall_async(
    tensor: Tensor, splits: Any = None, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Sends splits[i] rows to rank i, by default the same number to each rank. The result is the
    received rows and, with splits, also the number of rows from each rank (int32). Waits until all
    ranks have called alltoall_async()."""
    comm = communicator(process_set, ["rows", *tensor.shape[1:]])
    sent = _rows_to_send(tensor, splits, comm)
    with with_shapes():
        got = comm.alltoall(sent)
    out = tensor.new_empty((int(got.sum()), *tensor.shape[1:]))
    rows = tensor.detach()[: int(sent.sum())].contiguous()
    begun = comm.ialltoallv(rows, sent.tolist(), got.tolist(), out)
    return Handle([begun], lambda: out if splits is None else (out, got.int()))


def alltoall(
    tensor: Tensor, splits: Any = None, name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Like alltoall_async(), but waits. Backward sends the gradients of the rows back."""
    counts: list[Tensor] = []
    sent = _rows_to_send(tensor, splits, communicator(process_set))

    def forward(own: Tensor) -> Tensor:
        got = alltoall_async(own, sent, None, process_set).wait()
        counts.append(got[1])
        return got[0]

    rows = _Differentiable.apply(
        forward, lambda g: alltoall(g, counts[0], None, process_set)[0], tensor[: int(sent.sum())],
    )
    return rows if splits is None else (rows, counts[0])


def reducescatter_async(
    tensor: Tensor, name: str | None = None, op: Any = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces over all ranks, and gives each rank its rows of the result. If the rows cannot be
    divided evenly, the first ranks get one row more."""
    comm, kind = communicator(process_set, tensor.shape), _horovod.reduction(op)
    least, more = divmod(len(tensor), comm.size)
    start = comm.rank * least + min(comm.rank, more)
    stop = start + least + (comm.rank < more)
    if more or not tensor.is_floating_point() or kind not in ("mean", "sum"):
        factors = (prescale_factor, postscale_factor, process_set)
        whole = allreduce_async(tensor, None, None, kind, *factors)
        return Handle([whole], lambda: whole.wait()[start:stop].clone())
    begun = comm.ireduce_scatter(
        tensor.detach().contiguous(), "avg" if kind == "mean" else kind,
        tensor.new_empty((least, *tensor.shape[1:])),
        prescale=prescale_factor, postscale=postscale_factor,
    )
    return Handle([begun], begun.wait)


def reducescatter(
    tensor: Tensor, name: str | None = None, compression: Any = Compression.none,
    op: Any = Average, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Tensor:
    """Like reducescatter_async(), but waits. Backward gathers the gradients of the rows, and
    multiplies them by the factors and, if op is not Average, by the number of ranks."""
    packed, context = compression.compress(tensor)
    ranks = 1 if _horovod.reduction(op) == "mean" else communicator(process_set).size
    options = (op, process_set, prescale_factor, postscale_factor)
    factor = ranks * prescale_factor * postscale_factor
    part = _Differentiable.apply(
        lambda own: reducescatter_async(own, None, *options).wait(),
        lambda g: allgather(g, None, process_set) * factor,
        packed,
    )
    return compression.decompress(part, context)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns after every rank has called it."""
    communicator(process_set).barrier()


def _of_list(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a function of one tensor into a function of a list, with the same options."""
    begins = "async" in function.__name__

    def grouped(tensors: Sequence[Tensor], *options: Any, **named: Any) -> Any:
        begun = [function(tensor, *options, **named) for tensor in tensors]
        return Handle(begun, lambda: [handle.wait() for handle in begun]) if begins else begun

    return grouped


grouped_allreduce, grouped_allreduce_async = _of_list(allreduce), _of_list(allreduce_async)
grouped_allreduce_, grouped_allreduce_async_ = _of_list(allreduce_), _of_list(allreduce_async_)
grouped_allgather, grouped_allgather_async = _of_list(allgather), _of_list(allgather_async)
grouped_reducescatter = _of_list(reducescatter)
grouped_reducescatter_async = _of_list(reducescatter_async)
