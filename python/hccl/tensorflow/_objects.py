"""Exchanges pickled Python objects with all ranks. This needs no session, because the bytes are
sent at once, even while the program builds a graph of TensorFlow 1."""

from __future__ import annotations

import pickle
from typing import Any, Optional

import hccl
import numpy as np
import tensorflow as tf
from hccl import _horovod
from hccl._horovod import ProcessSet, global_process_set
from hccl.manage import api as _manage
from tensorflow.python.eager import context

from hccl.tensorflow import _collectives


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set, *, group: str = hccl.WORLD,
) -> Any:
    """Returns the root's object: the root gets the object itself, other ranks get a copy. session
    has no effect."""
    chosen = _horovod.group_of(process_set, group)
    is_root = _manage.get_rank_id(chosen) == _horovod.root_of(process_set, root_rank)
    data = np.frombuffer(pickle.dumps(obj) if is_root else b"", np.uint8)
    common: dict[str, Any] = {"name": name, "process_set": process_set, "group": group}
    with context.eager_mode():
        size = _collectives.broadcast(tf.constant(data.size, tf.int64), root_rank, **common)
        given = tf.constant(data) if is_root else tf.zeros(size, tf.uint8)
        sent = _collectives.broadcast(given, root_rank, **common).numpy()
    return obj if is_root else pickle.loads(sent.tobytes())


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set, *, group: str = hccl.WORLD,
) -> list[Any]:
    """Returns the objects of all ranks, in the order of the ranks. session has no effect."""
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    common: dict[str, Any] = {"name": name, "process_set": process_set, "group": group}
    with context.eager_mode():
        sizes = _collectives.allgather(tf.constant([data.size], tf.int64), **common).numpy()
        joined = _collectives.allgather(tf.constant(data), **common).numpy()
    return [pickle.loads(part.tobytes()) for part in np.split(joined, np.cumsum(sizes)[:-1])]
