"""The common part of DDP and CombinedGradients, which reduce gradients in the segments of a
plan."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from hccl import _variables
from hccl.split.api import set_split_strategy_auto
from hccl.torch import _module
from torch.distributed import distributed_c10d
from torch.distributed.constants import default_pg_timeout

CPU = torch.device("cpu")
SegmentHook = Callable[[Sequence[torch.nn.Parameter]], None]
_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Planned:
    """The public functions for the plan."""

    _plan: Any  # the C++ module's GradientPlan

    @property
    def segments(self) -> list[int]:
        """The last gradient of each segment in the next iteration, as an index of `gradients`.
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
        """Writes the trace of this rank's last iterations for hccl-plan. A .json file opens in
        Perfetto; a .csv file is a table."""
        self._plan.write_trace(str(path))

    def register_segment_hook(self, hook: SegmentHook | None) -> None:
        """Sets a hook for optimizers, such as FusedOptimizer.step_segment; None removes the hook.
        At the end of backward the hook is called once for each segment, with the segment's
        parameters, as soon as their gradients are reduced. Later segments are then still being
        reduced. The hook may read gradients and write parameters. An exception in the hook ends
        backward."""
        self._plan.set_tail(hook)


def check_parameters(parameters: dict[str, torch.nn.Parameter]) -> None:
    """Raises TypeError or ValueError with the name of a parameter that a plan cannot reduce."""
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


def join(
    group: dist.ProcessGroup, split_group: str, parameters: dict[str, torch.nn.Parameter]
) -> Any:
    """Makes a GradientPlan. All ranks of `group` must call join(). By default the plan is
    automatic."""
    if not _variables.is_set("HCCL_SPLIT"):
        set_split_strategy_auto(split_group)
    name = [f"plan_{uuid.uuid4().hex}"]  # unique: a group may have several models
    dist.broadcast_object_list(name, group=group, group_src=0)
    store = distributed_c10d._get_process_group_store(group)
    return _module.load("hccl.torch.CombinedGradients").GradientPlan(
        store=dist.PrefixStore(f"hccl/{name[0]}", store),
        rank=group.rank(),
        size=group.size(),
        timeout=getattr(group._get_backend(CPU), "timeout", default_pg_timeout),
        whole=_module.backend_of(group),
        name=name[0],
        group=split_group,
        parameters=list(parameters.values()),
        names=list(parameters),
    )
