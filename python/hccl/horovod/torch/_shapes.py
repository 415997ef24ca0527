"""The shapes that the ranks of horovod.torch compare in each collective."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

import hccl
from hccl import _horovod
from hccl._horovod import ProcessSet, global_process_set

_MOST = 1024
_shapes: dict[str, str] = {}  # by the tag that stands for the shape in error texts


def communicator(
    process_set: ProcessSet, shape: Any = None, also: str = ""
) -> hccl.Communicator:
    """shape: if given, the ranks compare it in each collective of the returned communicator, and
    with it the text `also`. ValueError: the process set does not contain this rank."""
    if not process_set.included():
        rank = global_process_set.rank()
        raise ValueError(f"hccl: rank {rank}, which calls a collective, is not in {process_set}")
    comm = hccl.Communicator.from_group(_horovod.group_of(process_set, hccl.WORLD))
    if shape is not None:
        text = f"shape {[*shape]}{also}"
        tag = zlib.crc32(text.encode())
        comm._native.set_tag(tag)
        if len(_shapes) >= _MOST:
            _shapes.clear()
        _shapes[f"tag #{tag | 1 << 31:08x}"] = text
    return comm


@contextlib.contextmanager
def with_shapes() -> Iterator[None]:
    """Replaces the tags of this rank's shapes in an error's text by the shapes."""
    try:
        yield
    except hccl.HcclError as error:
        text = re.sub("tag #[0-9a-f]{8}", lambda tag: _shapes.get(tag[0], tag[0]), str(error))
        raise hccl.HcclError(error.code, text) from None
