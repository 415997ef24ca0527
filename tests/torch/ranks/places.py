"""Prints this rank's numbers by Horovod's names."""

import hccl.horovod.torch as hvd

hvd.init()
print("said:", hvd.rank(), (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous(), hvd.local_size()), flush=True)
