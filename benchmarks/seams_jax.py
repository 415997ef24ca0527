"""The time of JAX's psum on hccl and on JAX's own Gloo: python benchmarks/seams_jax.py [--ranks N] [--rounds N]

Needs hccl and JAX in this Python. Starts the ranks with hccl and with Gloo in turn. Also starts a
world of one rank, to measure JAX's own time: its psum moves no data. Prints a table of the median
call of the slower rank in microseconds, with the least and the greatest of all rounds."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = {"64 B": 64, "64 KiB": 1 << 16, "1 MiB": 1 << 20}  # bytes in each process, float32


def measure() -> None:
    """Runs as one rank: prints the median seconds of a call, by size."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    if os.environ["IMPLEMENTATION"] == "gloo":  # Gloo is JAX's default on CPUs
        address, ranks, rank = (os.environ[name] for name in ("ADDRESS", "WORLD_SIZE", "RANK"))
        jax.distributed.initialize(address, int(ranks), int(rank))
    mesh = Mesh(np.array(jax.devices()), "i")
    sharding = NamedSharding(mesh, P("i"))
    add = jax.shard_map(lambda v: jax.lax.psum(v, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    total, medians = jax.jit(add), {}
    for name, size in SIZES.items():
        data = jax.make_array_from_process_local_data(sharding, np.ones(size // 4, np.float32))
        times = []
        for _ in range(600):
            begin = time.perf_counter()
            total(data).block_until_ready()
            times.append(time.perf_counter() - begin)
        medians[name] = statistics.median(times[100:])
    print("measured", json.dumps(medians))


def run(implementation: str, ranks: int) -> dict[str, float]:
    """Returns the medians of the slower rank, in microseconds. The ranks get torchrun's
    variables."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        port, other = str(first.getsockname()[1]), second.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    common.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, ADDRESS=f"127.0.0.1:{other}")
    common.update(TORCHELASTIC_RUN_ID=port, GROUP_RANK="0", IMPLEMENTATION=implementation)
    start = ["-m", "hccl.jax"] if implementation == "hccl" else []
    processes = [
        subprocess.Popen(
            [sys.executable, *start, __file__, "--measure"],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in processes]
    medians = [json.loads(output.split("measured ")[1]) for output in outputs]
    return {name: max(each[name] for each in medians) * 1e6 for name in SIZES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure()
        return
    worlds = {"hccl": arguments.ranks, "gloo": arguments.ranks, "one process": 1}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in worlds}
    for _ in range(arguments.rounds):
        for name, ranks in worlds.items():
            rounds[name].append(run(name, ranks))
    print("| | " + " | ".join(SIZES) + " |\n|---|" + "---:|" * len(SIZES))
    for name, results in rounds.items():
        cells = []
        for size in SIZES:
            times = sorted(result[size] for result in results)
            cells.append(f"{statistics.median(times):.0f} ({times[0]:.0f} to {times[-1]:.0f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


main()
