"""The world of this process: joined once, left when Python ends."""

from __future__ import annotations

import atexit
from typing import Callable, Optional

import hccl
from hccl import _hccl

_world: Optional[hccl.Communicator] = None
before_leaving: list[Callable[[], None]] = []


def joined() -> bool:
    """Whether there is a world, whoever has joined it."""
    try:
        _hccl.get_rank_size(_hccl.WORLD)
    except hccl.HcclError:
        return False
    return True


def join() -> None:
    global _world
    if not joined():
        _world = hccl.init()
        atexit.register(leave)


def leave() -> None:
    global _world
    if _world is not None:
        for each in before_leaving:
            each()
        _world.destroy()
        _world = None
        atexit.unregister(leave)
