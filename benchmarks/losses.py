#!/usr/bin/env python3
"""Times how long ranks take to hear that a rank has died, and to go on without that rank.

    benchmarks/losses.py [--ranks 12] [--times 30] [--transports shm,tcp] [--kinds root]

Each line is one kind of loss. Its times are the median and the worst of all runs, in milliseconds;
in each run the time of the last survivor counts:

    kill      from SIGKILL to the error
    shrink    the call of shrink() after the error
    group     a split() of the smaller communicator, and its first allreduce
    next      a second rank is killed after these calls: from SIGKILL to the error

Victims are the root (rank 0's process), a relay (rank 1, which has children in the control tree)
and a leaf (the last rank). "after the root left": rank 0 has destroyed its world and ended in good
order; then a leaf is killed. "stopped X" stops X with SIGSTOP before another rank is killed; X then
counts neither as a survivor nor as dead. The program needs the Python package; ranks are processes
of this host.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time

RANK = """
import array, sys, time
import hccl
comm = hccl.init()
if sys.argv[1:]:  # rank 0 leaves the world in good order
    world, comm = comm, comm.split(min(comm.rank, 1))
    if world.rank == 0:
        world.destroy()
        sys.exit()
data = array.array("f", [1.0] * 64)
while True:
    try:
        print("ready", time.monotonic_ns(), flush=True)
        while True:
            comm.allreduce(data)
            data[0] = 1.0
    except hccl.HcclError as error:
        heard = time.monotonic_ns()
        print("heard", heard, error.code, str(error).split("died")[0][-40:], flush=True)
    began = time.monotonic_ns()
    smaller = comm.shrink()
    print("shrunk", time.monotonic_ns(), time.monotonic_ns() - began, flush=True)
    comm.destroy()
    comm = smaller
    began = time.monotonic_ns()
    part = comm.split(comm.rank % 2)
    part.allreduce(data)
    print("group", time.monotonic_ns(), time.monotonic_ns() - began, flush=True)
    part.destroy()
"""


class Job:
    def __init__(self, ranks, transport, port, root_leaves):
        shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "HCCL_LOG": "off"}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        shared |= {"HCCL_TRANSPORT": transport, "HCCL_FLIGHT_RECORDER_DIR": "off"}
        self.ranks = {}
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            self.ranks[rank] = subprocess.Popen(
                [sys.executable, "-c", RANK, *["leave"] * root_leaves],
                env={**os.environ, **shared, **own},
                stdout=subprocess.PIPE,
                text=True,
            )
        self.all = list(self.ranks.values())
        if root_leaves:
            self.ranks.pop(0).wait(60)

    def __enter__(self):
        self.next("ready")
        return self

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.wait()
            process.stdout.close()

    def next(self, word, apart=()):
        """Reads the next line of each rank that is not in `apart`. The line must begin with `word`.
        Returns the fields of the lines, by rank."""
        lines = {}
        for rank, process in self.ranks.items():
            if rank in apart:
                continue
            line = process.stdout.readline().split(maxsplit=3)
            if not line or line[0] != word:
                raise SystemExit(f"losses: rank {rank} said {line}, not {word}")
            lines[rank] = line
        return lines

    def kill(self, rank, apart=()):
        """Kills a rank. Returns the milliseconds until the last survivor gets the error."""
        time.sleep(0.02)
        killed = time.monotonic_ns()
        self.ranks.pop(rank).kill()
        heard = self.next("heard", apart)
        for who, line in heard.items():
            if line[2] != "21" or not re.search(rf"rank {rank} \(", line[3]):
                raise SystemExit(f"losses: rank {who} blames {line[3]!r}, not rank {rank}")
        return max(int(line[1]) - killed for line in heard.values()) / 1e6

    def go_on(self):
        """Waits until all ranks are ready again. Returns the milliseconds of the slowest shrink()
        and of the slowest split()."""
        words = ("shrunk", "group")
        slowest = [max(int(each[2]) for each in self.next(word).values()) for word in words]
        self.next("ready")
        return [each / 1e6 for each in slowest]


LEFT = "after the root left"


def losses(ranks):
    places = {"root": 0, "relay": 1, "leaf": ranks - 1}
    for name, victim in places.items():
        yield name, victim, None
    yield LEFT, ranks - 1, None
    for name, stopped in places.items():
        yield f"stopped {name}", 2, stopped
    for name in ("relay", "leaf"):
        yield f"stopped {name}, root killed", 0, places[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=12)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--kinds", help="only kinds of loss whose name contains this text", default="")
    options = parser.parse_args()
    port = 20000 + os.getpid() % 10000
    for transport in options.transports.split(","):
        for name, victim, stopped in losses(options.ranks):
            if options.kinds not in name:
                continue
            columns = {"kill": [], "shrink": [], "group": [], "next": []}
            for _ in range(options.times):
                port += 2
                with Job(options.ranks, transport, port, name == LEFT) as job:
                    if stopped is None:
                        columns["kill"].append(job.kill(victim))
                        shrink, group = job.go_on()
                        columns["shrink"].append(shrink)
                        columns["group"].append(group)
                        columns["next"].append(job.kill(3))
                    else:
                        job.ranks[stopped].send_signal(signal.SIGSTOP)
                        columns["kill"].append(job.kill(victim, [stopped]))
            cells = [
                f"{key} {statistics.median(all):.1f} / {max(all):.1f}"
                for key, all in columns.items()
                if all
            ]
            print(f"{transport} {options.ranks} ranks, {name}: " + ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
