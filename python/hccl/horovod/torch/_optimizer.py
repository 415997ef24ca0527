"""Horovod's DistributedOptimizer: gradients are reduced while backward runs.

Each complete gradient is copied into memory that the ranks of a host share. The fusion engine
(hccl.Fusion) then reduces the gradients in the segments of a plan. The first step reduces without
overlap. Rank 0 then knows the order of backward, which becomes the order of the plan.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import hccl
import numpy as np
import torch
from hccl import _horovod, _variables, _world
from hccl._horovod import ProcessSet, global_process_set
from hccl.horovod.torch import _objects, _ops, _shapes
from hccl.horovod.torch._ops import Average, Compression
from hccl.split.api import set_split_strategy_auto
from torch import Tensor

_plans: weakref.WeakSet[_Plan] = weakref.WeakSet()
_optimizers: weakref.WeakSet[_Distributed] = weakref.WeakSet()


def barrier_of_plans() -> None:
    """Called by join(): raises an error if another rank still trains and reduces gradients in its
    plans."""
    comms = [comm for plan in _plans for comm in plan.comms]
    for comm in sorted(comms, key=lambda comm: comm.name):
        comm.barrier()


def close_plans() -> None:
    """Called before the end of the world."""
    for plan in list(_plans):
        plan.close()
    for optimizer in list(_optimizers):
        optimizer._forget()


_world.before_leaving.append(close_plans)


class _Plan:
    """The dense gradients of an optimizer, with a fusion for each type. All ranks must call the
    constructor together."""

    def __init__(self, named: list[tuple[str, Tensor]], options: _Options) -> None:
        group = _horovod.group_of(options.process_set, hccl.WORLD)
        if not _variables.is_set("HCCL_SPLIT"):
            set_split_strategy_auto(group)
        self.comms: list[hccl.Communicator] = []
        self._fusions: list[hccl.Fusion] = []
        self.slots: dict[Tensor, tuple[Tensor, hccl.Fusion, int]] = {}
        _plans.add(self)
        try:
            self._make_fusions(named, options, group)
        except BaseException:
            self.close()
            raise

    def _make_fusions(
        self, named: list[tuple[str, Tensor]], options: _Options, group: str
    ) -> None:
        types = [options.compression.compress(p.new_empty(0))[0].dtype for _, p in named]
        for dtype in sorted(set(types), key=str):
            own = [pair for pair, each in zip(named, types) if each == dtype]
            size = sum(p.numel() for _, p in own)
            block = torch.from_numpy(hccl.empty(size * dtype.itemsize, np.uint8)).view(dtype)
            views, start = [], 0
            for _, parameter in own:
                like = torch.empty_like(parameter, device="meta")
                views.append(block.as_strided(like.size(), like.stride(), start))
                start += like.numel()
            flat = [view.as_strided((view.numel(),), (1,)) for view in views]
            pairs = [(name, each) for (name, _), each in zip(own, flat)]
            # Each fusion needs its own communicator, because its first segment takes a position in
            # the communicator's order of operations.
            comm = _shapes.communicator(options.process_set).split(0)
            assert comm is not None  # never None, because this rank passes a color
            self.comms.append(comm)
            fusion = hccl.Fusion(comm, pairs, hcom_parallel=True, op=options.kind, group=group)
            self._fusions.append(fusion)
            for i, (_, parameter) in enumerate(own):
                self.slots[parameter] = (views[i], fusion, i)

    def wait(self) -> None:
        for fusion in self._fusions:
            fusion.wait()

    def close(self) -> None:
        for fusion in self._fusions:
            fusion.close()
        for comm in self.comms:
            comm.destroy()
        _plans.discard(self)


class _Options:
    """The arguments of DistributedOptimizer."""

    def __init__(
        self, names: dict[Tensor, str], compression: Any, passes: int, op: Any, predivide: float,
        sparse_as_dense: bool, process_set: ProcessSet,
    ) -> None:
        self.names, self.process_set, self.compression = names, process_set, compression
        self.passes, self.sparse_as_dense = passes, sparse_as_dense
        self.reduces = process_set.included() and (process_set.size() or 1) > 1
        self.op = _horovod.reduction(op)
        self.kind = "avg" if self.op == Average else self.op
        if predivide != 1.0:
            if self.op != Average:
                raise ValueError("hccl: gradient_predivide_factor is for means: omit op or the factor")
            self.kind = "sum"
        self.before, self.predivide = 1.0 / predivide, predivide

    @property
    def after(self) -> float:
        return 1.0 if self.predivide == 1.0 else self.predivide / (self.process_set.size() or 1)


class _Distributed:
    """The methods that DistributedOptimizer adds to the optimizer's class. They override those of
    the class."""

    _hvd: _Options
    param_groups: list[dict[str, Any]]

    def _begin(self, options: _Options) -> None:
        self._hvd, self._synchronized, self._waits = options, False, True
        self._plan: Any = None
        self._sparse: set[Tensor] = set()
        self._order: list[Tensor] = []  # parameters whose gradients are ready
        self._passes: dict[Tensor, int] = {}
        self._contexts: dict[Tensor, Any] = {}  # the contexts of the compression
        self._own: list[Tensor] = []
        self._watch(self.param_groups)
        _optimizers.add(self)

    def _forget(self) -> None:
        """Called when the world ends. In another world the next step makes a new plan."""
        self._plan, self._synchronized = None, False
        self._sparse, self._order, self._passes, self._contexts = set(), [], {}, {}

    def _watch(self, groups: list[dict[str, Any]]) -> None:
        added = [p for g in groups for p in g["params"] if p.requires_grad and p.numel()]
        if self._hvd.reduces:
            self._own += added
            for parameter in added:
                parameter.register_post_accumulate_grad_hook(self._hook)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)  # type: ignore[misc]
        self._watch(self.param_groups[-1:])
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._hvd.passes = passes

    def _hook(self, parameter: Tensor) -> None:
        self._passes[parameter] = self._passes.get(parameter, 0) + 1
        if self._passes[parameter] > self._hvd.passes:
            raise AssertionError(
                "hccl: gradients were computed more than backward_passes_per_step="
                f"{self._hvd.passes} times before step()"
            )
        if self._passes[parameter] == self._hvd.passes:
            self._ready(parameter)

    def _ready(self, parameter: Tensor) -> None:
        self._order.append(parameter)
        if self._plan is None or parameter in self._sparse:
            return
        slot, fusion, number = self._plan.slots[parameter]
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        packed, self._contexts[parameter] = self._hvd.compression.compress(gradient)
        if packed.data_ptr() != slot.data_ptr():
            slot.copy_(packed)
        if self._hvd.before != 1.0:
            slot.mul_(self._hvd.before)
        fusion.ready(number)

    def _make_plan(self) -> None:
        """Lets the ranks agree on which gradients are sparse, and on the order of all others.
        Compares the shapes of all parameters."""
        options, everything = self._hvd, self._own
        dense = options.sparse_as_dense
        flags = [p.grad is not None and p.grad.is_sparse and not dense for p in everything]
        sparse = torch.tensor(flags, dtype=torch.uint8)
        shapes = [tuple(p.shape) for p in everything]
        with _shapes.with_shapes():
            _shapes.communicator(options.process_set, shapes).allreduce(sparse, "max")
        self._sparse = {p for p, flag in zip(everything, sparse.tolist()) if flag}
        numbers = {p: i for i, p in enumerate(everything)}
        order = dict.fromkeys([*self._order, *reversed(everything)])
        mine = [numbers[p] for p in order]
        root = options.process_set.ranks[0]
        agreed = _objects.broadcast_object(mine, root, None, options.process_set)
        chosen = [everything[i] for i in agreed]
        named = [(options.names.get(p, "added"), p) for p in chosen if p not in self._sparse]
        self._plan = _Plan(named, options)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. Gradients that backward did not compute count as
        zeros."""
        self._synchronized = True
        if not self._hvd.reduces:
            return
        ready, begun = self._order, {}
        if self._plan is None:
            self._make_plan()
            ready, self._order = [], []
        done = set(ready)
        for parameter in [p for p in self._own if p not in done]:
            self._ready(parameter)
        for parameter in (p for p in self._own if p in self._sparse):
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter).to_sparse(1)
            begun[parameter] = _ops.sparse_allreduce_async(
                gradient, None, self._hvd.op, self._hvd.process_set
            )
        self._plan.wait()
        self._order, self._passes = [], {}
        for parameter, (slot, _, _) in self._plan.slots.items():
            self._take(parameter, slot)
        for parameter, wait in begun.items():
            parameter.grad = wait()

    def _take(self, parameter: Tensor, slot: Tensor) -> None:
        if self._hvd.after != 1.0:
            slot.mul_(self._hvd.after)
        was_sparse = parameter.grad is not None and parameter.grad.is_sparse
        reduced = self._hvd.compression.decompress(slot, self._contexts.pop(parameter))
        parameter.grad = reduced.to_sparse(1) if was_sparse else reduced

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this context step() does not wait for gradients: synchronize() was called before."""
        self._waits = False
        try:
            yield
        finally:
            self._waits = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the gradients, and makes a step. If the optimizer calls `closure`, the
        closure's gradients are reduced after each call."""
        if closure is not None:
            return super().step(lambda: self._after(closure))  # type: ignore[misc]
        if self._waits:
            if self._synchronized and not self._passes:
                text = "hccl: synchronize() was called: use skip_synchronize() around step()"
                warnings.warn(text, stacklevel=2)
            else:
                self.synchronize()
        self._synchronized = False
        return super().step()  # type: ignore[misc]

    def _after(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        self.synchronize()
        self._synchronized = False
        return loss

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if self._order and not self._synchronized:
            raise AssertionError("hccl: zero_grad() between backward() and step()")
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]


def DistributedOptimizer(  # noqa: N802  a class in Horovod
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: Any = Compression.none, backward_passes_per_step: int = 1, op: Any = Average,
    gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None,
    sparse_as_dense: bool = False, process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns an optimizer of the same class, with the parameters and the state of the given one.
    Its gradients are reduced over the ranks during backward, before step() uses them. After step()
    or synchronize() each `.grad` is in memory that the next iteration's reduction overwrites.

    named_parameters: all parameters of the optimizer, with unique names, which errors and traces
    use. num_groups and groups have no effect, because the plan chooses the segments. An unsupported
    value raises ValueError or NotImplementedError with its keyword."""
    _horovod.check_groups(num_groups, groups)
    if backward_passes_per_step < 1:
        raise ValueError(f"hccl: backward_passes_per_step={backward_passes_per_step}: is below 1")
    options = _Options(
        _names(optimizer, named_parameters), compression, backward_passes_per_step, op,
        gradient_predivide_factor, sparse_as_dense, process_set,
    )
    kind = type(optimizer)
    distributed: Any = type(kind.__name__, (_Distributed, kind), {})
    made = distributed.__new__(distributed)
    # A scheduler that was made before has set the attribute `step` of the optimizer: do not copy
    # it.
    made.__dict__.update({k: v for k, v in vars(optimizer).items() if k != "step"})
    made._begin(options)
    return made


def _names(optimizer: torch.optim.Optimizer, named: Any) -> dict[Tensor, str]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if named is None:
        return {p: f"parameter_{i}" for i, p in enumerate(parameters)}
    pairs = list(named)
    if not all(isinstance(pair, tuple) for pair in pairs):
        raise ValueError("hccl: named_parameters: expected pairs (name, parameter)")
    names = {p: name for name, p in pairs}
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("hccl: named_parameters: a name occurs twice")
    if not set(parameters) <= set(names):
        raise ValueError("hccl: named_parameters: a parameter of the optimizer has no name")
    return names
