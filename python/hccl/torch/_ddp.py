"""DistributedDataParallel whose gradients are reduced in the segments of a plan."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from hccl import WORLD
from hccl.torch import _module
from hccl.torch._plan import CPU, Planned, SegmentHook, check_parameters, join
from torch.distributed import distributed_c10d

_ONE_GRADIENT = 1 / (1 << 20)  # MiB: one gradient fills a bucket
_COMPILED = 25 << 20
_NOT_WITH_A_PLAN = (
    "bucket_cap_mb",
    "bucket_cap_mb_list",
    "mixed_precision",
    "delay_all_reduce_named_params",
    "param_to_hook_all_reduce",
    "skip_all_reduce_unused_params",
)


class DistributedDataParallel(Planned, torch.nn.parallel.DistributedDataParallel):
    """torch's DistributedDataParallel, except that the library's fusion planner decides how
    gradients are reduced.

        model = hccl.torch.DistributedDataParallel(model)

    The first two backward passes with communication find which gradients exist. After them,
    segments of gradients are reduced during backward. If hccl.split.api set a strategy by size or
    by index for `split_group`, that strategy cuts the gradients into segments. Otherwise HCCL's
    default cuts the gradients at first, and then the automatic plan, which is computed from times
    of the training and changes on all ranks at once. HCCL_SPLIT=trace only measures, and keeps the
    default; HCCL_SPLIT=default does not measure. HCCL_LOG=info logs the plan and the reason.

    Takes torch's arguments, except those that set how gradients are cut or cast.
    gradient_as_bucket_view is True by default, so that gradients are not copied. All parameters
    that need gradients must have the same type (float32, float64, bfloat16 or float16), and no
    gradient may be sparse. Not supported: Join, communication hooks (see register_segment_hook),
    optimizers in backward. TypeError or ValueError names an argument or a parameter that is not
    supported. A failure in backward is a DistBackendError.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *args: Any,
        split_group: str = WORLD,
        gradient_as_bucket_view: bool = True,
        **options: Any,
    ) -> None:
        _module.load("hccl.torch.DistributedDataParallel")
        if args:
            raise TypeError("hccl: pass all arguments but the module by name")
        parameters = _check(module, options)
        group = options.get("process_group")
        if group is None and options.get("device_mesh") is not None:
            group = options["device_mesh"].get_group(mesh_dim=0)
        group = group or distributed_c10d._get_default_group()
        self._bytes = sum(parameter.nbytes for parameter in parameters.values())
        self._plan = None
        with _packed(group, self._bytes):
            super().__init__(
                module,
                gradient_as_bucket_view=gradient_as_bucket_view,
                bucket_cap_mb=_ONE_GRADIENT,
                **options,
            )
        if self._use_python_reducer:
            raise ValueError('hccl: a plan needs the C++ reducer, not "python_reducer"')
        self.bucket_bytes_cap = _COMPILED  # torch.compile cuts its graphs by this size
        self._plan = join(group, split_group, parameters)
        _module.load().plan_reducer(self.reducer, self._plan)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not (torch.is_grad_enabled() and self.require_backward_grad_sync):
            return super().forward(*inputs, **kwargs)
        self._plan.mark_forward()
        if self._has_rebuilt_buckets:
            return super().forward(*inputs, **kwargs)
        with _packed(self.process_group, self._bytes):
            output = super().forward(*inputs, **kwargs)
        if self._has_rebuilt_buckets:
            self._plan.forget()
        return output

    def register_segment_hook(self, hook: SegmentHook | None) -> None:
        """Sets a hook for optimizers, such as FusedOptimizer.step_segment; None removes the hook.
        At the end of backward the hook is called once for each segment, with the segment's
        parameters, as soon as their gradients are reduced. Later segments are then still being
        reduced. The hook may read gradients and write parameters. An exception in the hook ends
        backward. ValueError: gradient_as_bucket_view is False."""
        if hook is not None and not self.gradient_as_bucket_view:
            raise ValueError("hccl: a segment hook needs gradient_as_bucket_view=True")
        super().register_segment_hook(hook)

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        raise TypeError("hccl: the plan is the communication hook; see register_segment_hook")

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.register_comm_hook(None, comm_hook_type)

    def _register_fused_optim(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("hccl: optimizers in backward do not go with a plan")

    def join_hook(self, **kwargs: Any) -> Any:
        raise TypeError("hccl: Join does not go with a plan: give all ranks as many batches")


def _check(module: torch.nn.Module, options: dict[str, Any]) -> dict[str, torch.nn.Parameter]:
    """Returns the parameters that need gradients, by name. TypeError or ValueError if a plan cannot
    reduce them."""
    for name in _NOT_WITH_A_PLAN:
        if options.get(name):
            raise TypeError(f"hccl: {name} does not go with a plan")
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", []))
    parameters = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and name not in ignored
    }
    check_parameters(parameters)
    for name, each in module.named_modules():
        if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.sparse:
            raise TypeError(f"hccl: the gradient of {name or 'the embedding'} is sparse")
    return parameters


@contextlib.contextmanager
def _packed(group: dist.ProcessGroup, size: int) -> Iterator[None]:
    """In this context DDP makes its buckets contiguous, so that segments need no copy."""
    backend = group._get_backend(CPU)
    pack = getattr(backend, "pack_tensors", None)  # TORCH_DISTRIBUTED_DEBUG=DETAIL hides it
    if pack is None:
        yield
        return
    pack(size)
    try:
        yield
    finally:
        pack(0)
