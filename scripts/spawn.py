#!/usr/bin/env python3
"""Starts the ranks of a program on this host, and lets the other ranks continue when one dies.

    scripts/spawn.py 4 python3 examples/train_digits.py

mpirun and torchrun kill all ranks when one of them dies. A program that goes on after a loss (see
HcclCommShrink) needs a launcher that does not. Each rank gets torchrun's variables. This script
prints each rank's process, and each rank that ends. Its exit status is 0 if at least one rank ended
with 0, else that of the last rank. Ctrl-C and SIGTERM are passed on to all ranks.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys


def free_port():
    """Returns a port P at which the ranks can meet; P and P + 1 are free."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                next_one.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                continue


def text(status):
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def main():
    if len(sys.argv) < 3 or not sys.argv[1].isdecimal() or int(sys.argv[1]) == 0:
        print("usage: spawn.py NUMBER_OF_RANKS PROGRAM [ARGUMENT ...]", file=sys.stderr)
        return 2
    size, command = int(sys.argv[1]), sys.argv[2:]
    if shutil.which(command[0]) is None:
        print(f"spawn: there is no program {command[0]}", file=sys.stderr)
        return 127
    shared = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    ranks = {}

    def pass_on(number, _):
        for process in ranks.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it has just ended and been waited for
                    os.kill(process.pid, number)

    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGTERM, pass_on)
    for rank in range(size):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks[rank] = subprocess.Popen(command, env={**os.environ, **shared, **own})
        print(f"spawn: rank {rank} is process {ranks[rank].pid}", file=sys.stderr, flush=True)
    statuses = []
    of_process = {process.pid: rank for rank, process in ranks.items()}
    while len(statuses) < size:
        pid, status = os.wait()
        rank = of_process[pid]
        status = ranks[rank].returncode = os.waitstatus_to_exitcode(status)
        statuses.append(status)
        if status != 0:
            print(f"spawn: rank {rank}: {text(status)}", file=sys.stderr, flush=True)
    if 0 in statuses:
        return 0
    return statuses[-1] if statuses[-1] > 0 else 128 - statuses[-1]


if __name__ == "__main__":
    sys.exit(main())
