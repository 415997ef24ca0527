"""The world of this process: joined once, left when Python ends."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from typing import Callable, Optional

import hccl
import numpy as np
from hccl import _hccl
from hccl.manage import api as _manage

_world: Optional[hccl.Communicator] = None
before_leaving: list[Callable[[], None]] = []

_joined_before_fork = False


def _before_fork() -> None:
    global _joined_before_fork
    _joined_before_fork = joined()


os.register_at_fork(before=_before_fork)
_process = os.getpid()


def refuse_in_fork() -> None:
    """Raises RuntimeError if this process was forked from a rank and joined no world of its own."""
    if os.getpid() != _process and _joined_before_fork and not joined():
        raise RuntimeError(
            f"hccl: process {os.getpid()} was forked from a rank, process {os.getppid()}, and is no "
            "rank itself: call collectives in the rank, or join a world of this process first"
        )


def joined() -> bool:
    """Returns whether this process is in a world, even if other code joined the world."""
    try:
        _hccl.get_rank_size(_hccl.WORLD)
    except hccl.HcclError:
        return False
    return True


def ranks(group: str) -> int:
    """Returns the number of ranks of a collective's group. RuntimeError: see refuse_in_fork()."""
    refuse_in_fork()
    return _manage.get_rank_size(group)


def size() -> int:
    """Returns the number of ranks of the world, or 1 if this process is in no world."""
    return _hccl.get_rank_size(_hccl.WORLD) if joined() else 1


def join() -> None:
    global _world
    if not joined():
        _world = hccl.init()
        atexit.register(leave)


def join_as_told() -> None:
    """Joins the world for a script for Ascend. RuntimeError: RANK_SIZE or CM_WORKER_SIZE is above
    1, but no variable describes how the ranks join, so this rank would train alone."""
    join()
    told = os.environ.get("RANK_SIZE") or os.environ.get("CM_WORKER_SIZE") or "1"
    if told.isdecimal() and int(told) > 1 and _hccl.get_rank_size(_hccl.WORLD) == 1:
        leave()
        raise RuntimeError(
            f"RANK_SIZE or CM_WORKER_SIZE says that there are {told} ranks, and nothing says how they meet: "
            "RANK_TABLE_FILE and RANK_ID, mpirun, torchrun or Slurm"
        )


def leave() -> None:
    global _world
    if _world is not None:
        for each in before_leaving:
            each()
        _world.destroy()
        _world = None
        atexit.unregister(leave)


def join_living() -> bool:
    """Replaces the world by a new world of the living ranks, in their old order, after other ranks
    died. All living ranks must call it. All groups end. Returns False, without any change, if no
    rank died, if the ranks are on several hosts, or if other code joined the world."""
    global _world
    old = _world
    if old is None or _manage.get_local_rank_size() != old.size:
        return False
    living = old.shrink()
    rank, size = living.rank, living.size
    if size < old.size:
        place = np.zeros(256, np.uint8)  # the path of the rank table by which the ranks join
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                path = os.path.join(folder, "living.json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(_table(size), file)
                name = os.fsencode(path)
                place[: len(name)] = np.frombuffer(name, np.uint8)
            living.broadcast(place, 0)
            leave()
            path = os.fsdecode(place.tobytes().rstrip(b"\0"))
            _world = hccl.init_from_rank_table(path, rank)
            atexit.register(leave)
            _world.barrier()  # waits until all ranks have read the table
    living.destroy()
    return _world is not old


def _table(size: int) -> object:
    devices = [{"device_id": str(i), "device_ip": "", "rank_id": str(i)} for i in range(size)]
    server = {"server_id": "127.0.0.1", "device": devices}
    return {"version": "1.0", "status": "completed", "server_count": "1", "server_list": [server]}
