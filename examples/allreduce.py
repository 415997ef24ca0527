"""The smallest program: every rank gives its number and gets the sum of all."""

import hccl
import numpy as np

comm = hccl.init()
value = np.array([comm.rank, 1], np.float32)
comm.allreduce(value)
total, count = value
me = f"rank {comm.rank} of {comm.size}"
print(f"{me}: the ranks add up to {total:g}, there are {count:g} of them")
comm.destroy()
