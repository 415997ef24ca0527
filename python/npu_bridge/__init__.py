"""Ascend's npu_bridge on CPUs: TensorFlow 1 scripts written for it train here, unmodified.

    from npu_bridge.npu_init import *

On import, TensorFlow 1's behaviour is switched on and its names are put onto the module tensorflow,
for the whole process: such scripts say tf.placeholder and tf.Session.
"""

from npu_bridge import _v1

tf = _v1.enable()
