"""torch.distributed.shrink_group for groups of this backend.

Torch's function is made for NCCL. It needs a list of the dead ranks, and mistakes group ranks for
global ranks. If the store died with rank 0, it fails after it has destroyed the group.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Optional

import _hccl_torch
from hccl.torch import _flight, _module

# Functions of torch that this module shares with torch's shrink_group.
_NEEDED = [
    "_cleanup_original_group",
    "_destroy_all_other_groups",
    "_register_pg_in_world",
    "_update_default_pg",
    "_validate_and_process_excluded_ranks",
    "_validate_shrink_inputs",
    "shrink_group",
]


def extend() -> None:
    """Makes torch.distributed.shrink_group call this module for groups of this backend."""
    from torch.distributed import distributed_c10d

    if not all(hasattr(distributed_c10d, name) for name in _NEEDED):
        return  # torch's function, if there is one, works with limits (src/shrink.cc)
    replaced = _hccl_torch.forward("shrink_group")
    torchs: Callable[..., Any] = replaced.__wrapped__

    @functools.wraps(torchs)
    def shrink_group(
        ranks_to_exclude: list[int],
        group: Optional[Any] = None,
        shrink_flags: int = 0,
        pg_options: Optional[Any] = None,
    ) -> Any:
        whole = distributed_c10d._get_default_group() if group is None else group
        backend = _only_backend(whole)
        if backend is not None and _module.why_python() is not None:
            _module.load("torch.distributed.shrink_group")  # raises
        if backend is None:
            return torchs(ranks_to_exclude, group, shrink_flags, pg_options)
        if ranks_to_exclude != []:  # [] is valid here: only dead ranks are left out
            distributed_c10d._validate_shrink_inputs(ranks_to_exclude, shrink_flags)
        facts: Any = {"group_size": whole.size(), "current_rank": whole.rank()}
        excluded = distributed_c10d._validate_and_process_excluded_ranks(ranks_to_exclude, facts)
        smaller, ranks = backend.shrink_to_living(sorted(excluded), shrink_flags, pg_options)
        others = sorted(set(range(whole.size())) - excluded - set(ranks))
        if others and excluded:
            logging.getLogger("hccl").warning(
                "hccl: shrink_group: ranks %s have died, too, and are left out", others
            )
        return _replace(whole, smaller, ranks)

    replaced.__wrapped__ = shrink_group


def _only_backend(group: Any) -> Any:
    """Returns the group's backend if it is the group's only backend and is hccl's; else None."""
    if not _module.is_loaded() or not hasattr(group, "_device_types"):
        return None
    backends = {id(group._get_backend(device)) for device in group._device_types or ["cpu"]}
    return _module.backend_of(group) if len(backends) == 1 else None


def _replace(old: Any, smaller: Any, ranks: list[int]) -> Any:
    """Replaces `old` by a group with the backend `smaller`, whose rank i was rank ranks[i] of
    `old`. Returns the new group."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    is_default = old is c10d._get_default_group()
    if is_default:  # global ranks change, so no other group can keep its numbers
        c10d._destroy_all_other_groups(exclude_group=old)
        members = list(range(len(ranks)))
    else:
        before = c10d.get_process_group_ranks(old)
        members = [before[rank] for rank in ranks]
    backend, store = c10d._world.pg_map[old]
    config = c10d._world.pg_backend_config[old]
    name = old.group_name
    description = "default:shrunken" if is_default else f"{name}:shrunk"
    devices = old._device_types
    c10d._cleanup_original_group(old, is_default)

    # torch would name the group by a count of groups. Only members run this code, so their count
    # would later differ from that of other ranks.
    title = f"{name}:shrunk"
    new = c10d.ProcessGroup(c10d.PrefixStore(f"{title}/", store), smaller.rank(), smaller.size())
    kind = c10d.ProcessGroup.BackendType.CUSTOM
    new._set_default_backend(kind)
    for device in devices:
        new._register_backend(torch.device(device), kind, smaller)
    new._set_group_name(title)
    new._set_group_desc(description)
    if is_default:
        c10d._update_default_pg(new)
    c10d._register_pg_in_world(
        new,
        backend_name=backend,
        store=store,
        group_name=title,
        backend_config=config,
        rank_mapping={member: rank for rank, member in enumerate(members)},
        add_to_default_tag=True,
    )
    _flight.record(new)
    return new
