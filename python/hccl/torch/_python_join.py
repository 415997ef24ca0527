"""Joins through the store, for the backend's form in Python."""

from __future__ import annotations

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
    if rank == 0:
        try:
            info = _hccl.root_info()
        except HcclError as error:
            store.set(key, f"hccl root info: {error}")
            raise
        store.set(key, info)
    else:
        end = datetime.datetime.now() + timeout
        while not _is_there(store, key, end - datetime.datetime.now()):
            pass
        info = store.get(key)
        if info.startswith(b"hccl root info: "):
            raise dist.DistBackendError(f"hccl: rank 0 of the group cannot be joined: {info!r}")
    native = _hccl.Communicator.from_root_info(info, size, rank)
    if rank == 0:
        store.delete_key(key)
    return native


def _is_there(store: Any, key: str, left: datetime.timedelta) -> bool:
    """Waits at most a second for the key, so that Ctrl-C can end the wait. DistStoreError: no time
    is left."""
    try:
        store.wait([key], max(min(left, _LOOK_AT_STORE), datetime.timedelta(milliseconds=1)))
    except dist.DistStoreError:
        if left <= _LOOK_AT_STORE:
            raise
        return False
    return True
