"""Collective communication for CPU hosts with HCCL's interface.

import hccl, numpy as np

with hccl.init() as comm:           # the ranks that mpirun, torchrun or Slurm started
    gradient = hccl.empty(1000, np.float32)     # memory that the ranks of a host share
    gradient[:] = comm.rank
    comm.allreduce(gradient)        # in place, on the array's own memory

Communicator has the operations. A non-blocking operation returns a Handle. Fusion reduces gradients
while backward computes others. hccl.manage.api and hccl.split.api are HCCL's own modules. `import
torch` registers the backend of hccl.torch. `python -m hccl.info` prints the installed parts.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from hccl._hccl import ANY_RANK, WORLD
    from hccl.communicator import Communicator, init, init_from_rank_table, root_info
    from hccl.errors import HcclError, HcclResult
    from hccl.fusion import Fusion
    from hccl.handle import Handle
    from hccl.memory import MemoryInfo, empty, memory_info

    __version__: str

# These modules are loaded at the first use, because `import torch` imports this package to register
# the backend and must not load the library.
_HOMES = {
    "ANY_RANK": "hccl._hccl",
    "WORLD": "hccl._hccl",
    "Communicator": "hccl.communicator",
    "Fusion": "hccl.fusion",
    "Handle": "hccl.handle",
    "HcclError": "hccl.errors",
    "HcclResult": "hccl.errors",
    "MemoryInfo": "hccl.memory",
    "empty": "hccl.memory",
    "init": "hccl.communicator",
    "init_from_rank_table": "hccl.communicator",
    "memory_info": "hccl.memory",
    "root_info": "hccl.communicator",
}
__all__ = [  # noqa: F822
    "ANY_RANK",
    "WORLD",
    "Communicator",
    "Fusion",
    "Handle",
    "HcclError",
    "HcclResult",
    "MemoryInfo",
    "empty",
    "init",
    "init_from_rank_table",
    "memory_info",
    "root_info",
]


def __getattr__(name: str) -> typing.Any:
    if name == "__version__":
        value = _version()
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'hccl' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    from importlib import metadata  # here, because the module takes long to load

    try:
        return metadata.version("hccl")
    except metadata.PackageNotFoundError:  # hasattr() and getattr() need an AttributeError
        raise AttributeError("hccl is not installed, so it has no version") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
