"""Horovod's name on hccl: see hccl.horovod."""

from hccl.horovod import alias, run

__all__ = ["run"]
__version__ = "0.28.1"  # Horovod's release with these names
alias(__name__, "runner")
