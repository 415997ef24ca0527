"""from npu_device.compat.v1.npu_init import *: npu_bridge's names."""

from npu_bridge.npu_init import *  # noqa: F403
from npu_bridge.npu_init import __all__  # noqa: F401
