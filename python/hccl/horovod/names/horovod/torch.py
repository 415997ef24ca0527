"""Horovod's names for PyTorch: hccl.horovod.torch."""

from hccl.horovod import alias
from hccl.horovod.torch import *  # noqa: F403
from hccl.horovod.torch import elastic

alias(__name__, "compression", "functions", "mpi_ops", "optimizer", "sync_batch_norm")
alias(__name__, elastic=elastic)
alias(f"{__name__}.elastic", "state")
