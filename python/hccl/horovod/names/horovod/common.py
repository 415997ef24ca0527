"""Horovod's exceptions."""

from hccl.horovod import alias
from hccl.horovod.elastic import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
alias(__name__, "exceptions")
