"""What the tests of TensorFlow share: ranks as processes of this Python."""

import os
import pathlib
import re
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 120  # seconds; for a hang, not for speed
os.environ.pop("PYTHONUNBUFFERED", None)  # it tears the lines of ranks that share a pipe
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
QUIET = {"HCCL_LOG": "off", "OMP_NUM_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}


def run(*command, timeout=TIMEOUT, **environment):
    """One process of this Python; its outcome with what it has printed."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **QUIET, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def start(size, *command, **environment):
    """Processes with the variables of torchrun, which nobody ends if one of them dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    places = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"} for rank in range(size)
    ]
    common = {
        **{"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "GROUP_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": port},
    }
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**os.environ, **QUIET, **common, **place, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place in places
    ]


def printed(ranks):
    """What each rank has printed until it ended: its errors, then its output. In one pipe a warning could tear a line
    of the output, which leaves the process in blocks of 8 KiB."""
    try:
        ended = [rank.communicate(timeout=TIMEOUT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [f"{errors}\n{output}" for output, errors in ended]


def said(output):
    """The texts that a rank's program prints as its answers, "said: TEXT". A path or a warning of TensorFlow's may
    hold any other word."""
    return re.findall(r"^said: (.*)", output, re.MULTILINE)


def on_ranks(size, *command, **environment):
    """What each rank has printed; all of them must end well."""
    ranks = start(size, *command, **environment)
    outputs = printed(ranks)
    for number, (rank, output) in enumerate(zip(ranks, outputs)):
        assert rank.returncode == 0, f"rank {number}: {output[-6000:]}"
    return outputs
