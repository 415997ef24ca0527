"""Decides which lists of gradients are fused into segments, and stores the program's settings."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Sequence

import hccl
import tensorflow as tf
from absl import logging
from hccl import _hccl
from hccl.manage import api as _manage
from hccl.split import api as _split

from hccl import _variables, _world
from hccl.tensorflow import _log, _ops

# A list below either limit is faster as one grouped operation, which makes fewer copies and takes
# no time from backward (benchmarks/tensorflow).
LEAST_BYTES, LEAST_TENSORS = 1 << 20, 8
_FUSED = (tf.float16, tf.bfloat16, tf.float32, tf.float64)

# The directory for traces, which are written when the world is left.
_directories: set[pathlib.Path] = set()

hcom_parallel = True  # segments are reduced while backward runs


def wanted(values: Sequence[tf.Tensor], reduction: str, group: str) -> bool:
    """Returns whether to fuse the list. The result depends only on the list and on settings that
    are the same on all ranks."""
    if group != hccl.WORLD or reduction not in ("mean", "sum") or tf.executing_eagerly():
        return False
    if _manage.get_rank_size() == 1:
        return False
    if not all(v.dtype in _FUSED and v.shape.is_fully_defined() for v in values):
        return False
    if _split._is_set() or _directories or _variables.value("HCCL_SPLIT", "default") != "default":
        return True
    if _manage.get_local_rank_size() == _manage.get_rank_size():
        return False
    size = sum(v.shape.num_elements() * v.dtype.size for v in values)
    if len(values) < LEAST_TENSORS or size < LEAST_BYTES:
        return False
    if not _variables.is_set("HCCL_SPLIT"):
        _hccl.set_split_auto(hccl.WORLD)  # because the program set no strategy
    return True


def reduce(values: Sequence[tf.Tensor], average: bool, names: Sequence[str]) -> list[Any]:
    """Reduces the gradients with one fused list for each type."""
    return _ops.by_type(
        values,
        lambda own: _ops.fused_all_reduce(
            [values[i] for i in own], average, [names[i] for i in own], hcom_parallel
        ),
    )


def trace_at_exit(directory: str | os.PathLike[str]) -> None:
    """When the world is left, writes the traces of this rank's fused lists to the directory:
    hccl_trace_rank<rank>_<list>.pb for `hccl-plan`, and .json for Perfetto."""
    _directories.add(pathlib.Path(directory))


def profile(options: str) -> None:
    """Applies Ascend's profiling_options, a JSON object. If its "training_trace" is "on", the
    default, traces are written when the world is left, to the directory "output", by default the
    current one. ValueError: the text is not a JSON object."""
    try:
        given = json.loads(options) if options else {}
        directory, trace = given.get("output", "."), given.get("training_trace", "on")
    except (ValueError, AttributeError):
        raise ValueError(f"profiling_options: not a JSON object: {options}") from None
    if trace == "on":
        trace_at_exit(directory or ".")


def end() -> None:
    """Writes the traces and ends the fused lists. Called before the world is left. If a trace
    cannot be written, only logs a warning, because the training is done."""
    for directory in _directories:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _ops.write_traces(str(directory / f"hccl_trace_rank{_manage.get_rank_id()}_"))
        except OSError as error:
            _log.log(logging.WARNING, "hccl: no traces in %s: %s", directory, error)
    _ops.forget_lists()


_world.before_leaving.append(end)
