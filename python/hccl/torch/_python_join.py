"""Joins through the store, for the backend's form in Python."""

from __future__ import annotations

import contextlib
import datetime
import os
from typing import Any

import torch.distributed as dist
from hccl import _hccl

_LOOK_AT_STORE = datetime.timedelta(seconds=1)
_NO_INFO = b"hccl root info: "  # before the reason why there is none


def join(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Returns the native communicator of the ranks that share the store."""
    one_host = os.environ.get("LOCAL_WORLD_SIZE", "") == os.environ.get("WORLD_SIZE", "")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "") if one_host else ""
    key = f"hccl/{attempt or 0}"  # as in src/communicator.cc
    keys = [f"{key}/{each}" for each in range(size)]  # one of each rank
    end = datetime.datetime.now() + timeout
    store.set(keys[rank], b"1")
    try:
        if rank == 0:
            info = _invite(store, key, keys, end, timeout)
        else:
            _await(store, [key], keys, end, timeout)
            info = store.get(key)
            if info.startswith(_NO_INFO):
                raise dist.DistBackendError(f"hccl: rank 0 of the group cannot be joined: {info!r}")
        native = _hccl.Communicator.from_root_info(info, size, rank)
        if rank == 0:
            _forget(store, key)
        return native
    finally:
        _forget(store, keys[rank])


def _invite(
    store: Any, key: str, keys: list[str], end: datetime.datetime, timeout: datetime.timedelta
) -> bytes:
    """Waits for all ranks, then stores the root info. On failure stores the reason instead."""
    _forget(store, key)  # of an attempt that failed
    try:
        if len(keys) > 1:
            _await(store, keys, keys, end, timeout)
        info = bytes(_hccl.root_info())
    except Exception as error:
        store.set(key, _NO_INFO + str(error).encode())
        raise
    store.set(key, info)
    return info


def _forget(store: Any, key: str) -> None:
    with contextlib.suppress(Exception):  # a user's own store may lack delete_key
        store.delete_key(key)


def _await(
    store: Any, awaited: list[str], keys: list[str], end: datetime.datetime, timeout: Any
) -> None:
    """Waits until the store has the keys; looks each second, so that Ctrl-C can end the wait."""
    while True:
        begin = datetime.datetime.now()
        left = end - begin
        limit = max(min(left, _LOOK_AT_STORE), datetime.timedelta(milliseconds=1))
        try:
            store.wait(awaited, limit)
            return
        except RuntimeError:  # stores differ in the type of their timeouts
            if datetime.datetime.now() - begin < limit:
                raise
        if left <= _LOOK_AT_STORE:
            break
    absent = "other ranks"
    with contextlib.suppress(Exception):  # a user's own store may lack check
        ranks = [str(rank) for rank, each in enumerate(keys) if not store.check([each])]
        absent = f"rank {', '.join(ranks)} of {len(keys)}"
    raise dist.DistBackendError(
        f"hccl: init_process_group: absent after {timeout.total_seconds():g} s, the timeout of "
        f"the process group: {absent}"
    )
