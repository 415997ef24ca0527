"""Who this process is among the ranks."""

from __future__ import annotations

from hccl.manage import api as manage
from hccl.tensorflow import _world


def rank() -> int:
    _world.join_as_told()
    return manage.get_rank_id()


def size() -> int:
    """Joins the ranks that the environment describes, if nobody has."""
    _world.join_as_told()
    return manage.get_rank_size()
