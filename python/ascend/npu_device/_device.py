"""open(): opens the device of this process and joins the workers."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Optional

import tensorflow as tf
from absl import logging
from hccl.manage import api as manage
from hccl import _world
from hccl.tensorflow import _fusion, _log

from npu_device import _function, configs

_lock = threading.Lock()
_opened: dict[int, Device] = {}
_default: Optional[Device] = None


class Device:
    """The result of open(): the device, and this process's number among the workers."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.workers_num = manage.get_rank_size()
        self.worker_id = manage.get_rank_id()

    def name(self) -> str:
        return f"/job:localhost/replica:0/task:0/device:NPU:{self._number}"

    def scope(self) -> Any:
        """Returns a context that makes tensors on the device, which is the CPU."""
        return tf.device("/CPU:0")

    def is_cluster_worker(self) -> bool:
        return self.workers_num > 1 and 0 <= self.worker_id < self.workers_num

    def as_default(self) -> Device:
        """Makes npu.distribute reduce over the workers, and makes tf.function ignore jit_compile,
        because compiled functions do not support collectives."""
        global _default
        _default = self
        tf.function = _function.npu_compat_function
        return self


def open(device_id: Optional[int] = None) -> Device:  # noqa: A001  Ascend's name
    """Opens the device and joins the workers that the environment describes: RANK_TABLE_FILE and
    RANK_ID, RANK_SIZE, mpirun, torchrun or Slurm. Without any of them there is one worker.

    ValueError: both RANK_SIZE and CM_WORKER_SIZE are set. RuntimeError: a setting is missing,
    another device is open, or joining the workers failed."""
    number = int(os.environ.get("ASCEND_DEVICE_ID", "0")) if device_id is None else device_id
    with _lock:
        if number in _opened:
            _log.log(logging.INFO, "Npu instance on device %d already created", number)
            return _opened[number]
        if _opened:
            raise RuntimeError(
                f"Failed open npu device {number}: device {next(iter(_opened))} is open already, "
                "and a process has one"
            )
        _check_environment()
        try:
            _world.join_as_told()
        except RuntimeError as error:  # HcclError, too
            raise RuntimeError(f"Failed open npu device {number}: {error}") from None
        _apply(configs.global_options())
        _opened[number] = Device(number)
        return _opened[number]


def _apply(options: configs.GlobalOptions) -> None:
    _fusion.hcom_parallel = bool(options.hcom_parallel)
    if options.profiling_config.enable_profiling:
        _fusion.profile(options.profiling_config.profiling_options or "")


def cluster_worker() -> Optional[Device]:
    """Returns the default device if there are several workers, otherwise None."""
    return _default if _default is not None and _default.is_cluster_worker() else None


def _check_environment() -> None:
    if "RANK_SIZE" in os.environ and "CM_WORKER_SIZE" in os.environ:
        raise ValueError("RANK_SIZE and CM_WORKER_SIZE cannot be configured at the same time")
    size = 1
    with contextlib.suppress(ValueError):
        size = int(os.environ.get("RANK_SIZE") or os.environ.get("CM_WORKER_SIZE") or 1)
    if size <= 1:
        return
    if "CM_CHIEF_IP" in os.environ and "RANK_TABLE_FILE" in os.environ:
        raise RuntimeError("CM_CHIEF_IP and RANK_TABLE_FILE cannot be configured at the same time")
    # The library rejects CM_CHIEF_IP alone, and its error names the other ways to join.
    if "RANK_TABLE_FILE" in os.environ and not os.environ.get("RANK_ID"):
        raise RuntimeError(f"RANK_ID is not set, but there are {size} workers")
