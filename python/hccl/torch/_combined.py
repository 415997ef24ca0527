"""Gradients in one block of shared memory, reduced during backward, without DDP."""

import contextlib
import functools
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from hccl import WORLD
from hccl.torch._memory import empty
from hccl.torch._plan import Planned, SegmentHook, check_parameters, join
from torch.distributed import distributed_c10d

if typing.TYPE_CHECKING:
    from hccl.torch.optim import FusedOptimizer


class CombinedGradients(Planned):
    """The gradients of a module in one block of memory that the ranks of a host share. Backward
    reduces them in place, in the segments of a plan, to their mean over the ranks.

        gradients = hccl.torch.CombinedGradients(model)
        gradients.register_segment_hook(optimizer.step_segment)     # optional

    It is for loops that do not wrap their model in DistributedDataParallel: forward does not
    change, and after backward each `.grad` is reduced, as with DDP. The constructor copies rank 0's
    parameters and buffers to all ranks. hccl.torch.DistributedDataParallel describes how gradients
    are cut.

    A gradient that is zeroed in place (zero_grad(set_to_none=False), or step(zero_grad=True)) stays
    in the block; a new gradient is copied into the block. If a parameter has no gradient in an
    iteration, its gradient counts as zeros. All ranks must run backward equally often. To
    accumulate gradients, use no_sync(). After an error in backward the object cannot be used any
    more.

    All parameters that need gradients must have the same type: float32, float64, bfloat16 or
    float16.

    overlap_forward: the optimizer of these parameters, which must be one of hccl.torch.optim. The
    next forward pass then begins before all gradients are reduced. This helps models whose
    gradients occupy the network for longer than backward lasts. The first 20 iterations run in the
    plain order; after them, the newest gradients are sent first. step() returns at once. Each
    module waits only for its own parameters, which are stepped when their gradients arrive. The
    weights are bit by bit those of the plain order. step() reads numbers such as lr when it is
    called. `.grad` is None between backward and step(), and after step(). Call synchronize() before
    step() to read, clip or unscale gradients. Also call synchronize() before code reads parameters,
    except in forward and in state_dict of model or optimizer. Modules that torch.compile compiles
    are not supported.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        process_group: dist.ProcessGroup | None = None,
        split_group: str = WORLD,
        overlap_forward: "FusedOptimizer | None" = None,
    ) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        named.reverse()  # nearly backward's order
        check_parameters(dict(named))
        group = process_group or distributed_c10d._get_default_group()
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), group=group, group_src=0)
        self._parameters = [parameter for _, parameter in named]
        self._views = _views(self._parameters)
        self._plan = join(group, split_group, dict(named))
        self._plan.set_gradients(self._views)
        self._plan.mark_forward()
        self._missing: set[int] = set()  # gradients not ready in this backward pass; empty between passes
        self._syncs = True
        self._overlap: Any = None
        if overlap_forward is not None:
            from hccl.torch._forward import ForwardOverlap

            self._overlap = ForwardOverlap(
                module, overlap_forward, self._parameters, self._views, self._plan
            )
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._ready, i))
            for i, parameter in enumerate(self._parameters)
        ]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this context backward reduces nothing. The gradients are added to those of the next
        backward pass outside the context."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def synchronize(self) -> None:
        """With overlap_forward: returns when all gradients are reduced and, if called after step(),
        all parameters are stepped. If called before step(), sets each `.grad`, and the next step()
        is a plain step. A failure names the rank."""
        if self._overlap is not None:
            self._overlap.synchronize()

    def register_segment_hook(self, hook: SegmentHook | None) -> None:
        """Sets a hook for optimizers, such as FusedOptimizer.step_segment; None removes the hook.
        At the end of backward the hook is called once for each segment, with the segment's
        parameters, as soon as their gradients are reduced. Later segments are then still being
        reduced. The hook may read gradients and write parameters. An exception in the hook ends
        backward. ValueError: with overlap_forward there are no segments."""
        if self._overlap is not None:
            raise ValueError("hccl: with overlap_forward there are no segments")
        super().register_segment_hook(hook)

    def remove(self) -> None:
        """Ends the reductions in backward. All ranks must call it."""
        if self._overlap is not None:
            self._overlap.remove()
        for hook in self._hooks:
            hook.remove()
        self._plan.forget()

    def _ready(self, number: int, parameter: torch.Tensor) -> None:
        if not self._syncs:
            return
        if not self._missing:
            _check_not_nested(self.gradients[number])
            if self._overlap is not None:
                self._overlap.begin_backward()
            self._missing = set(range(len(self._parameters)))
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        elif number not in self._missing:
            raise RuntimeError(
                f"hccl: the gradient of {self.gradients[number]} was ready already: an error ended "
                "the last backward pass before its end, and the ranks do not match any more, or "
                "checkpoints with use_reentrant=True share the parameter"
            )
        self._complete(number)
        self._missing.discard(number)

    def _complete(self, number: int) -> None:
        self._place(number)
        (self._overlap or self._plan).ready(number)

    def _place(self, number: int) -> None:
        parameter, view = self._parameters[number], self._views[number]
        gradient = parameter.grad
        if gradient is None:
            view.zero_()
        elif gradient.layout is not torch.strided:
            raise RuntimeError(
                f"hccl: the gradient of {self.gradients[number]} is sparse, "
                "which a plan cannot reduce"
            )
        elif gradient.data_ptr() == view.data_ptr():
            return
        else:
            view.copy_(gradient)
        parameter.grad = view

    def _finish(self) -> None:
        for number in sorted(self._missing):
            self._complete(number)
        self._missing.clear()
        if self._overlap is not None:
            self._overlap.end_backward()
            return
        self._plan.finish()
        self._plan.mark_forward()


def _check_not_nested(name: str) -> None:
    """Rejects a backward pass that begins inside a reentrant checkpoint. Autograd would report the
    end of backward when the checkpoint's own backward ends, and all other gradients would count as
    zeros."""
    frame: types.FrameType | None = sys._getframe()
    passes = 0
    while frame is not None:
        passes += frame.f_code is torch.autograd.graph._engine_run_backward.__code__
        frame = frame.f_back
    if passes > 1:
        raise RuntimeError(
            f"hccl: the first gradient of this backward pass, {name}, comes from a checkpoint with "
            "use_reentrant=True, which has no end that can be seen: use use_reentrant=False"
        )


def _views(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Returns a tensor for each parameter, with its strides; all tensors lie one after another in
    one block."""
    block = empty(sum(p.numel() for p in parameters), dtype=parameters[0].dtype).zero_()
    views, start = [], 0
    for parameter in parameters:
        like = torch.empty_like(parameter, device="meta")
        views.append(block.as_strided(like.size(), like.stride(), start))
        start += parameter.numel()
    return views
