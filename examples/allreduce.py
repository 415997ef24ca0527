"""The smallest program: every rank gives its number, every rank gets the sum."""

import hccl
import numpy as np

comm = hccl.init()
value = np.array([comm.rank, 1], np.float32)
comm.allreduce(value)
print(f"rank {comm.rank} of {comm.size}: the ranks add up to {value[0]:g}, there are {value[1]:g} of them")
comm.destroy()
