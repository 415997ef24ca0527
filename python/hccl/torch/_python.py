"""The backend in pure Python, on the package hccl, for a torch without a compiled module.

ProcessGroup checks the arguments of an operation and issues it. The operation runs on the caller's
thread if the caller waits and no earlier operation is queued; otherwise it runs on the thread of
the group's Queue.
"""

from __future__ import annotations

import datetime
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from hccl import ANY_RANK, HcclError
from hccl.torch._python_join import join
from hccl.torch._python_memory import Memory, block, counts, empty, exchange, reduction, unpack
from hccl.torch._python_overlap import unchanged_by, why_refused
from hccl.torch._python_queue import Message, Queue, end_groups, failure
from torch import Tensor

__all__ = ["ProcessGroup", "create", "empty", "end_groups"]

_UNSET = datetime.timedelta(milliseconds=-1)
_GRACE = 10  # if the program deletes a group without destroying it, its operations get this many seconds


class ProcessGroup(dist.ProcessGroup):
    """A group of ranks. The compiled form, src/backend.h, has the same operations."""

    timeout: datetime.timedelta
    supports_coalescing = supports_splitting = supports_shrinking = False

    def __init__(self, queue: Queue, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self.queue, self._native = queue, queue.native
        self._rank, self._ranks = rank, size
        self.set_timeout(timeout)
        reason = "the process group was deleted while operations ran"
        grace = min(timeout.total_seconds(), _GRACE)
        weakref.finalize(self, queue.end, grace, reason).atexit = False

    # ---- the group ----

    def getBackendName(self) -> str:
        return "hccl"

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def _get_backend(self, device: Any) -> Any:
        return self

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.timeout, self._seconds = timeout, timeout.total_seconds()

    # Names that older PyTorch has only in C++, and names of a backend.
    _device_types = property(lambda self: [torch.device("cpu")])
    group_name, _set_group_name = property(getGroupName), setGroupName
    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        pass

    def abort(self) -> None:
        self.queue.abort("the process group was aborted (ProcessGroup.abort)")

    def shutdown(self) -> None:
        self.queue.end(self._seconds, "the process group was destroyed while operations ran")

    def supports_tensor_alloc(self, device: Any) -> bool:
        return torch.device(device).type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: Any, device: Any = None) -> Tensor:
        return empty([size], dtype)

    # ---- issuing operations ----

    def _issue(self, title: str, options: Any, run: Callable[[], None], outputs: Any = ()) -> Any:
        """Runs the operation on this thread or the queue's. `run` keeps its tensors alive."""
        timeout = _UNSET if options is None else options.timeout
        seconds = self._seconds if timeout == _UNSET else timeout.total_seconds()
        waits = not getattr(options, "asyncOp", True)  # older PyTorch has no asyncOp
        return self.queue.issue(title, run, outputs, seconds, waits)

    def _refuse(self, call: str, text: str) -> None:
        """Raises a RuntimeError. Other ranks that wait in the operation get the same text."""
        text, native = f"ProcessGroupHccl::{call}: {text}", self._native
        self.queue.issue(call, lambda: native.refuse(text), (), self._seconds, True).wait()
        raise RuntimeError(text)

    def _check(self, call: str, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            self._refuse(call, "requires non-empty tensor list")
        dtype = tensors[0].dtype
        for each in tensors:
            if not each.is_cpu:
                self._refuse(call, f"only supports CPU tensors, not {each.device}")
            if each.layout is not torch.strided:
                self._refuse(call, f"unsupported layout {each.layout} (the form in Python)")
            if each.dtype is not dtype:
                self._refuse(call, f"tensors must all have the same type, not {each.dtype}")

    def _check_outputs(self, call: str, outputs: Sequence[Tensor]) -> None:
        if text := why_refused(outputs):
            self._refuse(call, text)

    def _single(self, call: str, tensors: Sequence[Tensor], output: bool = False) -> Tensor:
        if len(tensors) > 1:
            self._refuse(call, "requires a single-element tensor list (the form in Python)")
        self._check(call, tensors)
        self._check_outputs(call, tensors if output else ())
        return tensors[0]

    def _root(self, call: str, options: Any) -> int:
        if not 0 <= options.rootRank < self._ranks:
            self._refuse(call, f"invalid root rank: {options.rootRank}")
        return int(options.rootRank)

    def _parts(self, call: str, lists: Any, like: Tensor) -> list[Tensor]:
        """Returns the only list in `lists`, which must have a tensor for each rank. This rank's
        tensor must have the shape of `like`."""
        if len(lists) != 1 or len(lists[0]) != self._ranks:
            self._refuse(call, f"requires one list, of {self._ranks} tensors")
        parts = list(lists[0])
        self._check(call, [like, *parts])
        if parts[self._rank].shape != like.shape:
            self._refuse(call, f"invalid tensor size at index {self._rank}")
        return parts

    def _pairs(self, call: str, large: list[Tensor], small: list[Tensor], outputs: Any) -> None:
        """Checks that each large tensor is as long as the small tensors of all ranks together."""
        if len(large) != len(small):
            self._refuse(call, "input and output tensor lists must have the same length")
        for pair in zip(large, small):
            self._check(call, pair)
            if pair[0].numel() != pair[1].numel() * self._ranks:
                self._refuse(call, "the sizes of input and output must differ by world size times")
        self._check_outputs(call, outputs)

    def _reduction(self, call: str, op: Any, dtype: Any) -> tuple[str, float]:
        """Returns the package's name of the reduction, and the factor of the inputs."""
        try:
            return reduction(op, dtype)
        except TypeError as error:
            self._refuse(call, str(error))
            raise

    # ---- collectives that compute ----

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        self._single("allreduce", tensors)
        return self.allreduce_coalesced(tensors, opts or dist.AllreduceOptions())

    def sum_in_place(self, tensor: Tensor) -> None:
        self.allreduce([tensor]).wait()

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        if len(tensors) != 1:
            self._check("allreduce_coalesced", tensors)
        options, native = opts or dist.AllreduceCoalescedOptions(), self._native
        op, factor = self._reduction("allreduce", options.reduceOp, tensors[0].dtype)

        def run() -> None:
            # Tensors may share memory (tied weights). Each gets the sum.
            for source, tensor in zip(unchanged_by(tensors, tensors), tensors):
                memory = block([source], filled=True)
                native.all_reduce(Memory(memory), op, None, factor, 1.0, True)
                unpack(memory, [tensor])

        return self._issue("all_reduce", options, run, tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        tensor, root = self._single("reduce", tensors), self._root("reduce", opts)
        op, factor = self._reduction("reduce", opts.reduceOp, tensor.dtype)
        native, here = self._native, tensors if self._rank == root else []

        def run() -> None:
            memory = block([tensor], filled=True)
            native.reduce(Memory(memory), op, root, None, factor, 1.0, True)
            unpack(memory, here)

        return self._issue("reduce", opts, run, tensors)

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None
    ) -> Any:
        output, call = self._single("reduce_scatter", outputs, output=True), "reduce_scatter"
        parts = self._parts(call, inputs, output)
        options, native = opts or dist.ReduceScatterOptions(), self._native
        op, factor = self._reduction(call, options.reduceOp, output.dtype)
        begin = sum(each.numel() for each in parts[: self._rank])

        def run() -> None:
            memory, send = block(outputs), block(parts, filled=True)
            if len({each.numel() for each in parts}) == 1:
                native.reduce_scatter(Memory(send), op, Memory(memory), factor, 1.0, True)
            else:
                send = send.clone()
                native.all_reduce(Memory(send), op, None, factor, 1.0, True)
                memory = send[begin : begin + output.numel()]
            unpack(memory, outputs)

        return self._issue(call, options, run, outputs)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        call, options = "_reduce_scatter_base", opts or dist.ReduceScatterOptions()
        self._pairs(call, inputs, outputs, outputs)
        ops = [self._reduction(call, options.reduceOp, each.dtype) for each in outputs]
        native = self._native

        def run() -> None:
            sources = unchanged_by(outputs, inputs)
            for output, source, (op, factor) in zip(outputs, sources, ops):
                memory, send = block([output]), block([source], filled=True)
                native.reduce_scatter(Memory(send), op, Memory(memory), factor, 1.0, True)
                unpack(memory, [output])

        return self._issue("reduce_scatter", options, run, outputs)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    # ---- collectives that move ----

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        self._single("broadcast", tensors)
        root, native, rank = self._root("broadcast", opts), self._native, self._rank

        def run() -> None:
            memory = block(tensors, filled=rank == root)
            native.broadcast(Memory(memory), root, True)
            unpack(memory, tensors if rank != root else [])

        return self._issue("broadcast", opts, run, tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        self._single("allgather", inputs)
        return self._allgather("allgather", outputs, inputs, opts)

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        call = "allgather_coalesced"
        if len(outputs) != self._ranks or any(len(each) != len(inputs) for each in outputs):
            self._refuse(call, f"requires {self._ranks} lists, each as long as the inputs")
        return self._allgather(call, [list(each) for each in zip(*outputs)], inputs, opts)

    def _allgather(self, call: str, lists: Any, inputs: list[Tensor], options: Any) -> Any:
        if len(lists) != len(inputs):
            self._refuse(call, "input and output tensor lists must have the same length")
        lists = [self._parts(call, [parts], each) for parts, each in zip(lists, inputs)]
        self._check_outputs(call, [each for parts in lists for each in parts])
        native, size = self._native, self._ranks

        def run() -> None:
            for parts, source in zip(lists, unchanged_by(lists, inputs)):
                if len({each.numel() for each in parts}) > 1:
                    sources = [source] * size
                    exchange(native, sources, counts(sources), parts, counts(parts))
                    continue
                memory, send = block(parts), block([source], filled=True)
                native.all_gather(Memory(send), Memory(memory), True)
                unpack(memory, parts)

        outputs = lists[0] if len(lists) == 1 else lists
        return self._issue("all_gather", options, run, outputs)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        self._pairs("_allgather_base", outputs, inputs, outputs)
        native = self._native

        def run() -> None:
            for output, source in zip(outputs, unchanged_by(outputs, inputs)):
                memory, send = block([output]), block([source], filled=True)
                native.all_gather(Memory(send), Memory(memory), True)
                unpack(memory, [output])

        return self._issue("all_gather", opts, run, outputs)

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Any:
        return self.all_gather_single_coalesced([output], [source], opts)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        tensor, root = self._single("gather", inputs), self._root("gather", opts)
        parts = self._parts("gather", outputs, tensor) if self._rank == root else []
        self._check_outputs("gather", parts)
        give, take = self._only(root, tensor), counts(parts) or [0] * self._ranks
        return self._exchange("gather", opts, inputs, give, parts, take)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        output, root = self._single("scatter", outputs, output=True), self._root("scatter", opts)
        parts = self._parts("scatter", inputs, output) if self._rank == root else []
        give, take = counts(parts) or [0] * self._ranks, self._only(root, output)
        return self._exchange("scatter", opts, parts, give, outputs, take)

    def _exchange(
        self, title: str, opts: Any, inputs: Any, give: Any, outputs: Any, take: Any
    ) -> Any:
        run = functools.partial(exchange, self._native, inputs, give, outputs, take)
        return self._issue(title, opts, run, outputs)

    def _only(self, rank: int, tensor: Tensor) -> list[int]:
        return [counts([tensor])[0] * (each == rank) for each in range(self._ranks)]

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        self._check("alltoall_base", [output, source])
        self._check_outputs("alltoall_base", [output])
        take, give = self._rows(output, output_split_sizes), self._rows(source, input_split_sizes)
        equal = not (output_split_sizes or input_split_sizes)
        if equal and give != take:
            self._refuse("alltoall_base", "input and output differ in size")
        return self._exchange("all_to_all", opts, [source], None if equal else give, [output], take)

    def _rows(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        """Returns the number of elements of each rank's part. `splits` has the number of rows of
        each part; if it is empty, the parts are equal."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if splits and (len(splits) != self._ranks or sum(splits) != rows):
            self._refuse("alltoall_base", "Split sizes do not match the tensor's dim 0")
        if not splits and rows % self._ranks:
            self._refuse("alltoall_base", "dim 0 does not divide equally across group size")
        row = counts([tensor])[0] // max(rows, 1)
        return [each * row for each in splits or [rows // self._ranks] * self._ranks]

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        if not len(outputs) == len(inputs) == self._ranks:
            self._refuse("alltoall", f"requires lists of {self._ranks} tensors")
        self._check("alltoall", [*inputs, *outputs])
        self._check_outputs("alltoall", outputs)
        give, take = counts(inputs), counts(outputs)
        return self._exchange("all_to_all", opts, inputs, give, outputs, take)

    def barrier(self, opts: Any = None) -> Any:
        return self._issue("barrier", opts, functools.partial(self._native.barrier, True))

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self.barrier().wait(timeout or self.timeout)  # the text names the absent ranks

    # The names before PyTorch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # ---- messages ----

    def send(self, tensors: list[Tensor], dest: int, tag: int = 0) -> Any:
        memory = block([self._message("send", tensors, tag)], filled=True)
        return Message("send", self._native.send, memory, [], dest, tag, self._seconds)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Any:
        memory = block([self._message("recv", tensors, tag)])
        return Message("recv", self._native.recv, memory, tensors, source, tag, self._seconds)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        return self.recv(tensors, ANY_RANK, tag)

    def _message(self, call: str, tensors: list[Tensor], tag: int) -> Tensor:
        self.queue.check()
        if tag < 0:
            raise RuntimeError(f"ProcessGroupHccl::{call}: Tag must be nonnegative")
        return self._single(call, tensors, output=call == "recv")


# ---- making groups ----


def create(options: Any, store: Any, whole: Optional[ProcessGroup]) -> ProcessGroup:
    """Makes a process group. `whole`: the default group, if the new group is a part of it."""
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    call = "init_process_group" if whole is None else "new_group"
    try:
        if whole is None or whole.queue.left:
            queue = Queue(join(store, rank, size, timeout), None)
        else:
            ranks, limit = list(options.global_ranks_in_group), round(timeout.total_seconds() * 1e3)
            native = whole.queue.native.next_group(ranks, str(options.group_id), max(1, limit))
            queue = Queue(native, whole.queue)
    except HcclError as error:
        raise failure(error, call) from None
    return ProcessGroup(queue, rank, size, timeout)
