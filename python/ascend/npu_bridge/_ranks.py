"""Returns the rank of this process and the number of ranks."""

from __future__ import annotations

from hccl.manage import api as manage
from hccl import _world


def rank() -> int:
    _world.join_as_told()
    return manage.get_rank_id()


def size() -> int:
    """Returns the number of ranks. Joins the world that the environment describes if this process
    has not joined."""
    _world.join_as_told()
    return manage.get_rank_size()
