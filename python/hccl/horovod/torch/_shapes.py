"""The shapes that the ranks of horovod.torch compare in each collective."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

import hccl
from hccl import _horovod
from hccl._horovod import ProcessSet

_MOST = 1024
_shapes: dict[str, str] = {}  # by the tag that stands for the shape in error texts


def communicator(process_set: ProcessSet, shape: Any = None) -> hccl.Communicator:
    """shape: if given, the ranks compare it in each collective of the returned communicator."""
    comm = hccl.Communicator.from_group(_horovod.group_of(process_set, hccl.WORLD))
    if shape is not None:
        tag = zlib.crc32(repr([*shape]).encode())
        comm._native.set_tag(tag)
        if len(_shapes) >= _MOST:
            _shapes.clear()
        _shapes[f"tag #{tag | 1 << 31:08x}"] = f"shape {[*shape]}"
    return comm


@contextlib.contextmanager
def with_shapes() -> Iterator[None]:
    """Replaces the tags of this rank's shapes in an error's text by the shapes."""
    try:
        yield
    except hccl.HcclError as error:
        text = re.sub("tag #[0-9a-f]{8}", lambda tag: _shapes.get(tag[0], tag[0]), str(error))
        raise hccl.HcclError(error.code, text) from None
