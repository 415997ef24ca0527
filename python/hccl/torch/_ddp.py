"""DistributedDataParallel whose gradients are reduced in the segments of a plan."""

import contextlib
import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from hccl import WORLD
from hccl.split.api import set_split_strategy_auto
from hccl.torch import _module
from torch.distributed import distributed_c10d
from torch.distributed.constants import default_pg_timeout

_CPU = torch.device("cpu")
_ONE_GRADIENT = 1 / (1 << 20)  # MiB: a bucket is full when it has one
_COMPILED = 25 << 20
_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_NOT_WITH_A_PLAN = (
    "bucket_cap_mb",
    "bucket_cap_mb_list",
    "mixed_precision",
    "delay_all_reduce_named_params",
    "param_to_hook_all_reduce",
    "skip_all_reduce_unused_params",
)


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """torch's DistributedDataParallel, but that the library's fusion planner decides how gradients
    are reduced.

        model = hccl.torch.DistributedDataParallel(model)

    The first two backward passes with communication only show what there is to reduce; then
    segments of gradients run beside backward. How they are cut:
    - the strategy that hccl.split.api has set for `split_group`, by size or by index; else
    - by HCCL's default at first, and then by the automatic plan: measured while training runs, and
      changed on all ranks at once. HCCL_SPLIT=trace measures and changes nothing;
      HCCL_SPLIT=default does neither. HCCL_LOG=info says what was planned and why.

    Takes torch's arguments, but for those that say how gradients are cut or cast;
    gradient_as_bucket_view is True by default, so that gradients are not copied. The parameters
    that need gradients have one type of float32, float64, bfloat16 and float16, and no gradient is
    sparse. Not supported: Join, communication hooks (see register_segment_hook), optimizers in
    backward. TypeError or ValueError names what is not. A failure in backward is a DistBackendError.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *args: Any,
        split_group: str = WORLD,
        gradient_as_bucket_view: bool = True,
        **options: Any,
    ) -> None:
        if args:
            raise TypeError("hccl: give the arguments behind the module by name")
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
        self.bucket_bytes_cap = _COMPILED  # torch.compile cuts its graphs by it
        if not os.environ.get("HCCL_SPLIT"):
            set_split_strategy_auto(split_group)
        self._plan = _join(group, split_group, parameters)
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

    @property
    def segments(self) -> list[int]:
        """The last gradient of each segment, as an index of `gradients`, in the next iteration.
        Empty before the first backward pass."""
        return self._plan.segments

    @property
    def gradients(self) -> list[str]:
        """The names of the parameters in the order in which their gradients are reduced."""
        return self._plan.gradients

    def trace_text(self) -> str:
        """The time line of the last iteration: "<microseconds> <point>" on each line."""
        return self._plan.trace_text()

    def write_trace(self, path: str) -> None:
        """Writes this rank's last iterations for hccl-plan; .json opens in Perfetto, .csv is a
        table."""
        self._plan.write_trace(str(path))

    def register_segment_hook(
        self, hook: Callable[[Sequence[torch.nn.Parameter]], None] | None
    ) -> None:
        """Calls `hook` with the parameters of each segment at the end of backward, as soon as their
        gradients are reduced, while later segments still are; None: no longer. For optimizers that
        step segment by segment. Needs gradient_as_bucket_view. The hook may read gradients, and
        write parameters; what it raises ends backward."""
        if hook is not None and not self.gradient_as_bucket_view:
            raise ValueError("hccl: a segment hook needs gradient_as_bucket_view=True")
        self._plan.set_tail(hook)

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        raise TypeError("hccl: the plan is the communication hook; see register_segment_hook")

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.register_comm_hook(None, comm_hook_type)

    def _register_fused_optim(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("hccl: optimizers in backward do not go with a plan")

    def join_hook(self, **kwargs: Any) -> Any:
        raise TypeError("hccl: Join does not go with a plan: give all ranks as many batches")


def _check(module: torch.nn.Module, options: dict[str, Any]) -> dict[str, torch.nn.Parameter]:
    """The parameters that need gradients, by name; TypeError or ValueError where a plan cannot
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
    if not parameters:
        raise ValueError("hccl: no parameter needs a gradient")
    first, kind = next((name, parameter.dtype) for name, parameter in parameters.items())
    for name, parameter in parameters.items():
        if parameter.device.type != "cpu":
            raise ValueError(f"hccl: {name} is on {parameter.device}, not on the CPU")
        if parameter.dtype not in _TYPES:
            raise TypeError(f"hccl: {name} is of {parameter.dtype}, which a plan cannot reduce")
        if parameter.dtype != kind:
            raise TypeError(
                f"hccl: {name} is of {parameter.dtype}, {first} of {kind}: a plan needs one type"
            )
        if hasattr(parameter, "_in_backward_optimizers"):
            raise TypeError(f"hccl: {name} has an optimizer in backward")
    for name, each in module.named_modules():
        if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.sparse:
            raise TypeError(f"hccl: the gradient of {name or 'the embedding'} is sparse")
    return parameters


def _join(group: dist.ProcessGroup, split_group: str, parameters: dict[str, torch.nn.Parameter]):
    token = [uuid.uuid4().hex]  # for several models in a group
    dist.broadcast_object_list(token, group=group, group_src=0)
    store = distributed_c10d._get_process_group_store(group)
    return _module.load().GradientPlan(
        store=dist.PrefixStore(f"hccl/plan/{token[0]}", store),
        rank=group.rank(),
        size=group.size(),
        timeout=getattr(group._get_backend(_CPU), "timeout", default_pg_timeout),
        group=split_group,
        parameters=list(parameters.values()),
        names=list(parameters),
    )


@contextlib.contextmanager
def _packed(group: dist.ProcessGroup, size: int):
    """DDP's buckets made meanwhile lie one behind the other, so that segments need no copy."""
    backend = group._get_backend(_CPU)
    pack = getattr(backend, "pack_tensors", None)  # TORCH_DISTRIBUTED_DEBUG=DETAIL hides it
    if pack is None:
        yield
        return
    pack(size)
    try:
        yield
    finally:
        pack(0)
