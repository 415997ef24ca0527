"""A context that removes an NPU's graphs at its end; without effect on a CPU, which has none."""

from npu_device._kept import Context


class ScopedGraphManager(Context):
    pass
