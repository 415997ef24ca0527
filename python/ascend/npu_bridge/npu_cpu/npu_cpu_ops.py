"""Embedding tables and text recognition on an NPU's own CPU. Calling any of these functions raises
an error that names a replacement."""

from __future__ import annotations

from typing import Any

from npu_device._kept import absent


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    why = "embedding tables are tf.Variable with tf.nn.embedding_lookup, and images are tf.image's"
    return absent(f"npu_cpu_ops.{name}", why)
