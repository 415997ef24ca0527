"""Collective communication for CPU hosts with HCCL's interface.

comm = hccl.init()          # the ranks that mpirun, torchrun or Slurm started
comm.allreduce(array)       # in place, on the array's own memory
comm.destroy()
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from hccl._hccl import WORLD
    from hccl.communicator import Communicator, init, init_from_rank_table, root_info
    from hccl.errors import HcclError
    from hccl.fusion import Fusion

# Loaded at the first use: `import torch` imports this package to register the backend, and must
# not load the library.
_HOMES = {
    "WORLD": "hccl._hccl",
    "Communicator": "hccl.communicator",
    "Fusion": "hccl.fusion",
    "HcclError": "hccl.errors",
    "init": "hccl.communicator",
    "init_from_rank_table": "hccl.communicator",
    "root_info": "hccl.communicator",
}
__all__ = [  # noqa: F822
    "WORLD",
    "Communicator",
    "Fusion",
    "HcclError",
    "init",
    "init_from_rank_table",
    "root_info",
]


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'hccl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
