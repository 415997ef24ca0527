"""Makes "gloo" mean hccl, for frameworks that know no other backend for CPUs."""

import functools
import os
from typing import Any

from hccl import _variables

VARIABLE = "HCCL_AS_GLOO"
_done = False


def asked() -> bool:
    return _variables.switch(VARIABLE, default=False)


def refuse_groups(error: ValueError) -> None:
    """Makes torch.distributed raise `error` when the program makes its next group."""
    from torch.distributed import distributed_c10d

    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    distributed_c10d._new_process_group_helper = refuse


def make_gloo_mean(name: str) -> None:
    """`name` is the name of the backend. A second call does nothing."""
    from torch.distributed import distributed_c10d

    global _done
    if _done:
        return
    _done = True
    os.environ[VARIABLE] = "1"  # for the processes that this process starts
    helper = distributed_c10d._new_process_group_helper

    # torch calls this function for each new group. The group keeps the backend name that the
    # program gave.
    @functools.wraps(helper)
    def make(size: int, rank: int, ranks: list[int], backend: Any, *rest: Any, **named: Any) -> Any:
        made = ",".join(_without_gloo(each, name) for each in str(backend).split(","))
        group, store = helper(size, rank, ranks, made, *rest, **named)
        groups = distributed_c10d._world.pg_map
        if group in groups:  # this rank is a member
            groups[group] = (backend, *groups[group][1:])
            if group.name() in ("gloo", "undefined"):  # torch's guess for a backend by device
                group._set_default_backend(distributed_c10d.ProcessGroup.BackendType.CUSTOM)
        return group, store

    distributed_c10d._new_process_group_helper = make
    # For groups that the program makes without the name of a backend.
    distributed_c10d.Backend.default_device_backend_map["cpu"] = name


def _without_gloo(backend: str, name: str) -> str:
    """Returns the backend of one device, such as "gloo" or "cpu:gloo", with `name` for "gloo"."""
    device, colon, kind = backend.rpartition(":")
    return f"{device}{colon}{name}" if kind.lower() == "gloo" else backend
