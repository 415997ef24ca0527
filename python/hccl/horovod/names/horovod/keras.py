"""Horovod's names for Keras, which are the names for tf.keras."""

from hccl.horovod import alias
from hccl.horovod.keras import *  # noqa: F403
from hccl.horovod.tensorflow import elastic
from hccl.tensorflow import callbacks

alias(__name__, callbacks=callbacks, elastic=elastic)
