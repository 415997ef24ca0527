"""python failing.py RANK (kill | raise): all ranks call psum until rank RANK dies, or its program fails."""

import os
import signal
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

rank, how = int(sys.argv[1]), sys.argv[2]
mesh = Mesh(np.array(jax.devices()), "i")
total = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
data = jax.make_array_from_process_local_data(NamedSharding(mesh, P("i")), np.ones(4, np.float32))
for step in range(1000):
    total(data).block_until_ready()
    if step == 5 and jax.process_index() == rank:
        if how == "raise":
            raise ValueError("the data is bad")
        os.kill(os.getpid(), signal.SIGKILL)
