"""Heat spreads along a rod. Each rank computes a part, and exchanges the ends of its part with its
neighbours while it computes the rest. The number of ranks does not change the temperatures."""

import hccl
import numpy as np

POINTS, STEPS, RATE = 1200, 2000, 0.4
TO_LEFT, TO_RIGHT = 1, 2  # tags


def step(comm, old, new):
    """Computes one step. old[0] and old[-1] are the neighbours' ends, or the cold ends of the
    rod."""
    handles = []
    if comm.rank > 0:
        handles.append(comm.irecv(old[:1], comm.rank - 1, TO_RIGHT))
        handles.append(comm.isend(old[1:2], comm.rank - 1, TO_LEFT))
    if comm.rank < comm.size - 1:
        handles.append(comm.irecv(old[-1:], comm.rank + 1, TO_LEFT))
        handles.append(comm.isend(old[-2:-1], comm.rank + 1, TO_RIGHT))
    spread(old[1:-1], new[1:-1])  # needs no data from neighbours
    for handle in handles:
        handle.wait()
    spread(old[:3], new[:3])
    spread(old[-3:], new[-3:])


def spread(old, new):
    new[1:-1] = old[1:-1] + RATE * (old[:-2] - 2 * old[1:-1] + old[2:])


with hccl.init() as comm:
    first, last = (POINTS * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    old, new = np.zeros((2, last - first + 2))
    position = np.arange(first, last)
    old[1:-1] = 100.0 * ((position >= 200) & (position < 400))  # degrees
    hottest = None
    for _ in range(STEPS):
        step(comm, old, new)
        old, new = new, old
        if hottest is not None:
            hottest.wait()
        hottest = comm.iallreduce(np.array([old[1:-1].max(), 0.0]), "max")
    warmth = comm.allreduce(np.array([old[1:-1].sum()]))
    if comm.rank == 0:
        print(f"after {STEPS} steps: at most {hottest.wait()[0]:.3f} degrees, in all {warmth[0]:.3f}")
