"""Collective communication for CPU hosts with HCCL's interface.

comm = hccl.init()          # the ranks that mpirun, torchrun or Slurm started
comm.allreduce(array)       # in place, on the array's own memory
comm.destroy()
"""

from hccl._hccl import WORLD
from hccl.communicator import Communicator, init, init_from_rank_table, root_info
from hccl.errors import HcclError
from hccl.fusion import Fusion

__all__ = [
    "WORLD",
    "Communicator",
    "Fusion",
    "HcclError",
    "init",
    "init_from_rank_table",
    "root_info",
]
