"""Registers the backend. `import torch` calls register() or, since PyTorch 2.14, usually leaves the
call to the first use of the name "hccl" (group torch.distributed.backends; see _hccl_torch).
register() starts no thread, opens no socket and loads no C module. It never raises an exception,
because an exception would make `import torch` fail."""

from __future__ import annotations

import collections
import datetime
import functools
import hashlib
import os
import warnings
import weakref
from typing import Any

import _hccl_torch
from hccl.torch import _flight, _gloo, _module, _shrink

NAMES = ("hccl", "hccl_cpu")

# For each default group and each list of ranks: the number of groups made so far.
_made: Any = weakref.WeakKeyDictionary()


def register() -> None:
    """Registers the backend with torch.distributed. A second call does nothing."""
    try:
        _register()
        try:
            if _gloo.asked():
                as_gloo()
        except ValueError as error:
            _gloo.refuse_groups(error)
        _hccl_torch.end_groups_at_exit()
    except Exception as error:
        warnings.warn(f"hccl: the backend could not be registered: {error!r}", stacklevel=2)


def register_other_name() -> None:
    """Registers the backend for a program that uses its second name, even if the first one is
    free."""
    import torch.distributed as dist

    register()
    if NAMES[1].upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAMES[1], create, extended_api=True, devices=["cpu"])


def _register() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    name = _free_name(dist.Backend)
    if name is None:
        return
    # DDP's buckets are in shared memory, unless the user has set the variable.
    os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu"])
    _extend_set_pg_timeout()
    _shrink.extend()
    _flight.extend()
    if name != NAMES[0]:
        warnings.warn(
            f'hccl: another package has the backend name "{NAMES[0]}"; for CPU ranks use '
            f'init_process_group("{name}")',
            stacklevel=4,
        )


def _free_name(backends: Any) -> str | None:
    """Returns the name to register, or None if the backend is registered already."""
    for name in NAMES:
        plugin = backends._plugins.get(name.upper())
        if plugin is None:
            return name
        if plugin.creator_fn is create:
            return None
    raise RuntimeError(f"both names, {' and '.join(NAMES)}, are taken")


def _extend_set_pg_timeout() -> None:
    """Makes torch.distributed's _set_pg_timeout, which knows only torch's own backends, also set
    the timeout of a group of this backend."""
    from torch.distributed import distributed_c10d

    replaced = _hccl_torch.forward("_set_pg_timeout")
    torchs = replaced.__wrapped__

    @functools.wraps(torchs)
    def set_pg_timeout(timeout: datetime.timedelta, group: Any = None) -> None:
        whole = distributed_c10d._get_default_group() if group is None else group
        known = _module.is_loaded() and isinstance(whole, distributed_c10d.ProcessGroup)
        backend = _module.backend_of(whole) if known else None
        if backend is not None:
            backend._set_default_timeout(timeout)
        if backend is None or len(whole._device_types) > 1:
            torchs(timeout, group)

    replaced.__wrapped__ = set_pg_timeout


def name_of_backend() -> str:
    """Returns the name under which the backend is registered."""
    from torch.distributed import Backend

    plugins = ((each, Backend._plugins.get(each.upper())) for each in NAMES)
    return next(each for each, it in plugins if it and it.creator_fn is create)


def as_gloo() -> None:
    _register()
    _gloo.make_gloo_mean(name_of_backend())


def create(options: Any, pg_options: Any = None) -> Any:
    """Makes the backend of one process group. torch.distributed calls it on the members."""
    from torch.distributed import distributed_c10d

    group = getattr(options, "process_group", None)  # since PyTorch 2.14
    if group is not None and group.name() == "gloo" and not group._device_types:
        # default_device_backend_map had a name that torch did not know yet, so torch guessed.
        group._set_default_backend(distributed_c10d.ProcessGroup.BackendType.CUSTOM)
    if not 0 <= options.group_rank < options.group_size:
        raise ValueError(f"hccl: rank {options.group_rank} of {options.group_size} ranks")
    ranks = options.global_ranks_in_group  # ranks of the default group; [] for the default group
    store = _own_store(ranks) if ranks else options.store
    whole = _module.backend_of(distributed_c10d._get_default_group()) if ranks else None
    if _module.why_python() is not None:
        from hccl.torch import _python

        os.environ["DDP_DISABLE_COMM_MEM"] = "1"  # DDP asks only compiled backends for memory
        if whole is None:
            _module.warn_of_python(options.group_rank)
        return _python.create(options, store, whole)
    return _module.load().create(
        store=store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        group_name=options.group_id,
        global_ranks=ranks,
        whole=whole,
        later=getattr(options, "enable_reconfigure", False),  # since PyTorch 2.14
    )


def _own_store(ranks: list[int]) -> Any:
    """Returns the store by which the members of a group join, if the group is not a part of another
    communicator: the default group's store with a prefix. options.store does not fit, because its
    prefix is torch's name of the group, which may differ between members. PyTorch 2.14 counts
    groups with use_local_synchronization, which only their members make, and derives the names of
    later groups from that count."""
    from torch.distributed import PrefixStore, distributed_c10d

    default = distributed_c10d._get_default_group()
    made = _made.setdefault(default, collections.Counter())
    made[tuple(ranks)] += 1
    digest = hashlib.sha256(str(list(ranks)).encode()).hexdigest()
    prefix = f"hccl/{default.group_name}/{digest}/{made[tuple(ranks)]}"
    return PrefixStore(prefix, distributed_c10d._get_default_store())
