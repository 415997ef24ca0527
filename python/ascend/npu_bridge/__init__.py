"""Ascend's npu_bridge on CPUs: TensorFlow 1 scripts written for it train here, unmodified.

    from npu_bridge.npu_init import *

Scripts use names of TensorFlow 1, such as tf.placeholder and tf.Session. So the import enables
TensorFlow 1's behaviour and adds its names to the module tensorflow, for the whole process.
"""

from hccl.tensorflow import _launcher

from npu_bridge import _v1

tf = _v1.enable()
_launcher.tell_scripts()
