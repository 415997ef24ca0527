"""Horovod's names for TensorFlow and tf.keras: hccl.horovod.tensorflow, hccl.horovod.keras."""

from hccl.horovod import alias, keras
from hccl.horovod.tensorflow import *  # noqa: F403
from hccl.horovod.tensorflow import elastic
from hccl.tensorflow import callbacks

alias(__name__, "compression", "functions", "mpi_ops")
alias(__name__, elastic=elastic, keras=keras)
alias(f"{__name__}.keras", callbacks=callbacks, elastic=elastic)
