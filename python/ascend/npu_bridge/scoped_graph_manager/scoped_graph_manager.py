"""A context that removes an NPU's graphs at its end. A CPU has no such graphs, so it has no
effect."""

from npu_device._kept import Context


class ScopedGraphManager(Context):
    pass
