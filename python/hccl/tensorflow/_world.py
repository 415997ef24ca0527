"""The world of this process: joined once, left when Python ends."""

from __future__ import annotations

import atexit
import os
from typing import Callable, Optional

import hccl
from hccl import _hccl

_world: Optional[hccl.Communicator] = None
before_leaving: list[Callable[[], None]] = []


def joined() -> bool:
    """Whether this process is in a world, also if other code has joined it."""
    try:
        _hccl.get_rank_size(_hccl.WORLD)
    except hccl.HcclError:
        return False
    return True


def size() -> int:
    """The number of ranks; 1 before this process is in a world."""
    return _hccl.get_rank_size(_hccl.WORLD) if joined() else 1


def join() -> None:
    global _world
    if not joined():
        _world = hccl.init()
        atexit.register(leave)


def join_as_told() -> None:
    """Joins as scripts for Ascend do. RuntimeError: by RANK_SIZE or CM_WORKER_SIZE there are other
    ranks, but no variable tells how the ranks join, so this rank would train alone."""
    join()
    told = os.environ.get("RANK_SIZE") or os.environ.get("CM_WORKER_SIZE") or "1"
    if told.isdigit() and int(told) > 1 and _hccl.get_rank_size(_hccl.WORLD) == 1:
        leave()
        raise RuntimeError(
            f"RANK_SIZE or CM_WORKER_SIZE says that there are {told} ranks, and nothing says how they meet: "
            "RANK_TABLE_FILE and RANK_ID, CM_CHIEF_IP and its kin, mpirun, torchrun or Slurm"
        )


def leave() -> None:
    global _world
    if _world is not None:
        for each in before_leaving:
            each()
        _world.destroy()
        _world = None
        atexit.unregister(leave)
