"""Joins through the store, for the backend's form in Python."""

from __future__ import annotations

import contextlib
import datetime
import os
from typing import Any

import torch.distributed as dist
from hccl import HcclError, _hccl

_LOOK_AT_STORE = datetime.timedelta(seconds=1)


def join(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Returns the native communicator of the ranks that share the store."""
    one_host = os.environ.get("LOCAL_WORLD_SIZE", "") == os.environ.get("WORLD_SIZE", "")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "") if one_host else ""
    key = f"hccl/{attempt or 0}"  # as in src/communicator.cc
    keys = [key, *(f"{key}/{each}" for each in range(1, size))]  # one of each rank
    end = datetime.datetime.now() + timeout
    if rank == 0:
        try:
            info = _hccl.root_info()
        except HcclError as error:
            store.set(key, f"hccl root info: {error}")
            raise
        store.set(key, info)
    else:
        store.set(keys[rank], b"1")
        _await(store, keys[:1], keys, end, timeout)
        info = store.get(key)
        if info.startswith(b"hccl root info: "):
            raise dist.DistBackendError(f"hccl: rank 0 of the group cannot be joined: {info!r}")
    _await(store, keys, keys, end, timeout)
    native = _hccl.Communicator.from_root_info(info, size, rank)
    with contextlib.suppress(Exception):  # a user's own store may lack delete_key
        store.delete_key(keys[rank])
    return native


def _await(
    store: Any, awaited: list[str], keys: list[str], end: datetime.datetime, timeout: Any
) -> None:
    """Waits until the store has the keys; looks each second, so that Ctrl-C can end the wait."""
    while len(keys) > 1:
        begin = datetime.datetime.now()
        left = end - begin
        limit = max(min(left, _LOOK_AT_STORE), datetime.timedelta(milliseconds=1))
        try:
            store.wait(awaited, limit)
            return
        except RuntimeError:  # stores differ in the type of their timeouts
            if datetime.datetime.now() - begin < limit:
                raise
        if left > _LOOK_AT_STORE:
            continue
        absent = ", ".join(str(rank) for rank, each in enumerate(keys) if not store.check([each]))
        raise dist.DistBackendError(
            f"hccl: init_process_group: absent after {timeout.total_seconds():g} s, the timeout of "
            f"the process group: rank {absent} of {len(keys)}"
        )
