"""Which memory a collective touches, as the kernel reports it: arrays of hccl.empty() are read in place, and their data
is not copied through the staging buffers, as that of other arrays is."""

import os
import re

import hccl
import numpy as np

COUNT = 1 << 20  # of float32
LITTLE = 64 << 10  # bytes


def touched(comm, operation):
    """Returns how many bytes this process touches in staging memory, and in the device heaps."""
    comm.barrier()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("1")
    operation()
    sums, where = {"staging": 0, "heap": 0, "else": 0}, "else"
    with open("/proc/self/smaps") as file:
        for line in file:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                where = "staging" if "hccl-shm" in line else "heap" if "hccl-heap" in line else "else"
            elif line.startswith("Referenced:"):
                sums[where] += int(line.split()[1]) << 10
    comm.barrier()
    return sums["staging"], sums["heap"]


# All ranks share a core, so built-in costs choose the algorithms. Times that are measured now could favour staging on
# a busy machine.
os.sched_setaffinity(0, range(os.cpu_count()))  # undoes mpirun's binding of each rank to a core
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

with hccl.init() as comm:
    part = COUNT // comm.size
    array, out = hccl.empty(COUNT, np.float32), hccl.empty(COUNT, np.float32)
    array[:] = out[:] = 1
    operations = {
        "allreduce": lambda: comm.allreduce(array),
        "allreduce to out": lambda: comm.allreduce(array, out=out),
        "average": lambda: comm.allreduce(array, "avg"),
        "broadcast": lambda: comm.broadcast(array),
        "reduce": lambda: comm.reduce(array, out=out),
        "reduce_scatter": lambda: comm.reduce_scatter(array, out=out[:part]),
        "allgather": lambda: comm.allgather(array[:part], out=out),
        "scatter": lambda: comm.scatter(array, out=out[:part]),
        "alltoall": lambda: comm.alltoall(array, out=out),
        "non-blocking": lambda: comm.iallreduce(array).wait(),
    }
    for name, operation in operations.items():
        operation()
        staged, used = touched(comm, operation)
        assert staged <= LITTLE and used >= part * 4, f"{name}: {staged} staged, {used} of heaps"

    # Shows that the checks above can fail.
    ordinary = np.ones(COUNT, np.float32)
    staged, used = touched(comm, lambda: comm.allreduce(ordinary))
    assert staged > 4 * LITTLE and used <= LITTLE, f"ordinary: {staged} staged, {used} of heaps"
print("all right")
