"""Gradients combined in memory that the ranks share, reduced while backward runs, without DDP."""

import contextlib
import functools
from collections.abc import Iterator

import torch
import torch.distributed as dist
from hccl import WORLD
from hccl.torch._memory import empty
from hccl.torch._plan import Planned, check_parameters, join
from torch.distributed import distributed_c10d


class CombinedGradients(Planned):
    """The gradients of a module in one block of memory that the ranks of a host share; backward
    reduces them there, in the segments of a plan, to their mean over the ranks.

        gradients = hccl.torch.CombinedGradients(model)
        gradients.register_segment_hook(optimizer.step_segment)     # optional

    For loops that do not wrap their model in DistributedDataParallel: forward stays as it is, and
    after backward each `.grad` is reduced, as with DDP. Parameters and buffers are rank 0's from
    the beginning. How gradients are cut: as for hccl.torch.DistributedDataParallel.

    A gradient stays where it is if it is zeroed in place (zero_grad(set_to_none=False), or
    step(zero_grad=True)); a new one is copied into the block. Parameters without a gradient in an
    iteration count as zeros. All ranks run backward equally often; accumulate in no_sync().

    The parameters that need gradients have one type of float32, float64, bfloat16 and float16.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        process_group: dist.ProcessGroup | None = None,
        split_group: str = WORLD,
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
        self._missing: set[int] = set()  # in this backward pass; empty between two
        self._syncs = True
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._ready, i))
            for i, parameter in enumerate(self._parameters)
        ]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in it reduce nothing; gradients add up until the first one outside."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def remove(self) -> None:
        """Backward reduces no longer. On all ranks."""
        for hook in self._hooks:
            hook.remove()
        self._plan.forget()

    def _ready(self, number: int, parameter: torch.Tensor) -> None:
        if not self._syncs:
            return
        if not self._missing:
            self._missing = set(range(len(self._parameters)))
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._place(number)
        self._missing.discard(number)
        self._plan.ready(number)

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
            self._place(number)
            self._plan.ready(number)
        self._missing.clear()
        self._plan.finish()
        self._plan.mark_forward()


def _views(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    """A tensor like each parameter, strides included, one behind the other in one block."""
    block = empty(sum(p.numel() for p in parameters), dtype=parameters[0].dtype).zero_()
    views, start = [], 0
    for parameter in parameters:
        like = torch.empty_like(parameter, device="meta")
        views.append(block.as_strided(like.size(), like.stride(), start))
        start += parameter.numel()
    return views
