#!/usr/bin/env python3
"""Measures what joining, groups and messages cost many ranks of one host.

    benchmarks/scale.py [--ranks 16,64,256] [--transports shm,tcp] [--descriptors N]

Each line is one stage of a job. Times are those of the slowest rank, in milliseconds; the CPU time
is the whole job's, divided by the ranks. Descriptors and memory are the largest of all ranks after
the stage; memory is Pss, in which ranks share the cost of shared pages.

    init        hccl.init()
    allreduce   the first allreduce, of 4 KiB
    ring        each rank's first message to the next rank, and from the previous one
    split       groups of four ranks, made and not used
    used        the first allreduce of these groups

--descriptors sets the limit of each rank (ulimit -n). The program needs the Python package. Ranks
are forked from one process, so that hundreds of them fit a small machine.
"""

import argparse
import array
import json
import os
import resource
import socket
import sys
import time

import hccl

STAGES = ("init", "allreduce", "ring", "split", "used")


def run_rank(rank, parent):
    """Runs the stages. Before each the parent sends a byte, after each it gets a line of JSON."""
    data = array.array("f", [1.0] * 1024)
    state = {}

    def ring():
        comm, got = state["comm"], array.array("i", [-1])
        sent = comm.isend(array.array("i", [rank]), (rank + 1) % comm.size)
        comm.recv(got, (rank - 1) % comm.size)
        sent.wait()
        assert got[0] == (rank - 1) % comm.size

    def reduce(comm):
        data[:] = array.array("f", [1.0] * len(data))
        comm.allreduce(data)
        assert set(data) == {comm.size}, (data[0], comm.size)

    run = {
        "init": lambda: state.update(comm=hccl.init()),
        "allreduce": lambda: reduce(state["comm"]),
        "ring": ring,
        "split": lambda: state.update(group=state["comm"].split(rank // 4)),
        "used": lambda: reduce(state["group"]),
    }
    for stage in STAGES:
        parent.recv(1)
        cpu, since = time.process_time(), time.monotonic()
        run[stage]()
        seconds = time.monotonic() - since
        with open("/proc/self/smaps_rollup") as file:
            pss = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        files = len(os.listdir("/proc/self/fd")) - 1
        cpu = time.process_time() - cpu
        parent.sendall((json.dumps([seconds, cpu, files, pss]) + "\n").encode())
    parent.recv(1)  # no rank ends before the last has measured


def run_job(ranks, transport, descriptors):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1"}
    job |= {"MASTER_PORT": port, "HCCL_TRANSPORT": transport, "HCCL_LOG": "off"}
    lines, children = [], []
    for rank in range(ranks):
        parent, ours = socket.socketpair()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for other in [ours, *lines]:
                    other.close()
                if descriptors:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
                own = {"RANK": rank, "LOCAL_RANK": rank}
                os.environ.update({name: str(value) for name, value in {**job, **own}.items()})
                run_rank(rank, parent)
                status = 0
            except BaseException as error:
                print(f"scale: rank {rank}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        parent.close()
        lines.append(ours)
        children.append(child)
    for stage in STAGES:
        for line in lines:
            line.sendall(b".")
        answers = [line.recv(200) for line in lines]
        if b"" in answers:
            break  # the ranks have said why
        seconds, cpu, files, pss = zip(*map(json.loads, answers))
        print(
            f"{transport:4} {ranks:5} {stage:10} {max(seconds) * 1e3:9.1f} {sum(cpu) / ranks * 1e3:9.2f}"
            f" {max(files):11} {max(pss) / 1024:8.1f}",
            flush=True,
        )
    for line in lines:
        line.close()
    return all([os.waitpid(child, 0)[1] == 0 for child in children])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", default="16,64,256", help="numbers of ranks")
    parser.add_argument("--transports", default="shm,tcp", help="values of HCCL_TRANSPORT")
    parser.add_argument("--descriptors", type=int, help="the most descriptors of each rank")
    options = parser.parse_args()
    print("     ranks stage       time (ms)  CPU (ms) descriptors Pss (MiB)")
    good = True
    for transport in options.transports.split(","):
        for ranks in map(int, options.ranks.split(",")):
            good = run_job(ranks, transport, options.descriptors) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
