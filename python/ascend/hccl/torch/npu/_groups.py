"""ProcessGroupHCCL, its options, and the names of communicators."""

from typing import Any

import torch
import torch.distributed as dist

from hccl.torch import _module


class Options:
    """Options of a process group. They may be set to anything; none has an effect on a CPU."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.hccl_config: dict = {}
        self.global_ranks_in_group: list = []
        self.group_name = self.group_id = ""
        self.op_timeout = self._timeout = None


class _OfBackends(type):
    """Makes isinstance(backend, ProcessGroupHCCL) true for backends of hccl's compiled form, which
    is loaded for the first group. Ascend's names need the compiled form."""

    def __instancecheck__(cls, thing: Any) -> bool:
        if not _module.is_loaded():
            return False
        thing = getattr(thing, "wrapped_pg", thing)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
        return isinstance(thing, _module.load().ProcessGroupHccl)


class ProcessGroupHCCL(metaclass=_OfBackends):
    """Represents the class of hccl's backends, which init_process_group and new_group make."""

    Options = Options


def _name(group: Any, rankid: int = -1, init_comm: bool = True) -> str:
    """The method get_hccl_comm_name of groups and of backends. Returns the same name on all
    members. RuntimeError: the group runs on another backend."""
    backend: Any = _module.backend_of(group) if isinstance(group, dist.ProcessGroup) else group
    if not isinstance(backend, ProcessGroupHCCL):
        raise RuntimeError("hccl: the group has no communicator of HCCL")
    backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    return f"hccl_{backend.options.group_name}"


def install() -> None:
    """Adds the names to torch.distributed that torch_npu adds."""
    dist.ProcessGroupHCCL = ProcessGroupHCCL
    dist.is_hccl_available = lambda: True
    dist.ProcessGroup.get_hccl_comm_name = _name
    torch._C._distributed_c10d.Backend.get_hccl_comm_name = _name
