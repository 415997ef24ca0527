"""tf_adapter: on an NPU, npu_plugin calls it to start and end the NPU. Scripts that contain a copy
of npu_plugin also call it."""

from __future__ import annotations

from typing import Any

from hccl import _world
from hccl.tensorflow import _log

from npu_device._kept import absent

map_string_string = dict


def PluginInit(options: Any) -> None:  # noqa: N802  Ascend's name
    """Joins the ranks."""
    for name in options:
        _log.without_effect(f"tf_adapter.PluginInit: {name}")
    _world.join_as_told()


PluginFinalize = NpuClose = _world.leave

_WHY = "it concerns addresses of NPU memory"
GetVarAddrAndSize = absent("tf_adapter.GetVarAddrAndSize", _WHY)
MallocSharedMem = absent("tf_adapter.MallocSharedMem", _WHY)
RdmaInitAndRegister = absent("tf_adapter.RdmaInitAndRegister", _WHY)


def __getattr__(name: str) -> str:
    """Returns the name of an option as a constant, such as AUTO_TUNE_MODE."""
    if not name.isupper() or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return name
