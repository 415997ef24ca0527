"""tf_adapter: the start and end of the NPU below npu_plugin, for scripts with a copy of npu_plugin."""

from __future__ import annotations

from typing import Any

from hccl import _world
from hccl.tensorflow import _log

from npu_bridge import _absent

map_string_string = dict


def PluginInit(options: Any) -> None:  # noqa: N802  Ascend's name
    """Joins the ranks."""
    for name in options:
        _log.without_effect(f"tf_adapter.PluginInit: {name}")
    _world.join_as_told()


def PluginFinalize() -> None:  # noqa: N802
    _world.leave()


def NpuClose() -> None:  # noqa: N802
    _world.leave()


_WHY = "it concerns addresses of NPU memory"
GetVarAddrAndSize = _absent.function("tf_adapter.GetVarAddrAndSize", _WHY)
MallocSharedMem = _absent.function("tf_adapter.MallocSharedMem", _WHY)
RdmaInitAndRegister = _absent.function("tf_adapter.RdmaInitAndRegister", _WHY)


def __getattr__(name: str) -> str:
    """The names of options are constants, such as AUTO_TUNE_MODE."""
    if not name.isupper() or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return name
