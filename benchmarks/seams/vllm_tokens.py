"""Generates tokens by a Llama of 16 layers (tests/vllm/generate.py) on vLLM with hccl and with vLLM's own communicator:
tokens a second, and the time in collectives. Both must generate the same tokens.

vllm_tokens.py [--ranks N] [--hosts 2] [--rounds R], with the Python of .venv-vllm. One engine has
both communicators and uses them in turn. Two hosts are two network namespaces (needs root); vLLM's
own communicator then uses Gloo.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS / "vllm"), str(TESTS / "support")]
import generate
import hosts

SIZE, PROMPTS = "llama-1b", 4


def own_communicator(tp: Any, hosts: int) -> Any:
    import torch
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    gloo = torch.distributed.new_group(tp.ranks, backend="gloo")
    # With the name "tp", vLLM uses shared memory, which the namespaces of one machine would share, too.
    name = "tp_own" if hosts == 1 else ""
    return CpuCommunicator(tp.cpu_group, tp.device, gloo, name)


def queued() -> float:
    """Returns the seconds for which this thread has waited for a core."""
    return int(pathlib.Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def timed(call: Any, times: list[float], *arguments: Any, **named: Any) -> Any:
    begin = time.perf_counter()
    result = call(*arguments, **named)
    times.append(time.perf_counter() - begin)
    return result


def rank_main(a: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        llm = generate.load(folder, SIZE, a.ranks)
    from vllm.distributed import parallel_state

    tp = parallel_state.get_tp_group()
    both = {"hccl": tp.device_communicator, "own": own_communicator(tp, a.hosts)}
    times: list[float] = []
    for communicator in both.values():
        for name in ("all_reduce", "all_gather", "gather"):
            setattr(communicator, name, functools.partial(timed, getattr(communicator, name), times))
    for number in range(a.rounds + 1):
        for name in sorted(both, reverse=number % 2 > 0):
            tp.device_communicator = both[name]
            times.clear()
            begin = queued()
            said = [name, *generate.generate(llm, SIZE, PROMPTS, a.tokens), times]
            if number:  # the first round warms up
                print("said:", json.dumps([*said, queued() - begin]), flush=True)
    os._exit(0)


def spread(values: list[float], digits: int) -> str:
    numbers = [f"{each(values):.{digits}f}" for each in (statistics.median, min, max)]
    return "{} ({} to {})".format(*numbers)


def run(names: list[str], a: argparse.Namespace) -> list[list[Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    cores = sorted(os.sched_getaffinity(0))
    there = a.ranks // a.hosts
    ranks, outputs = [], [tempfile.NamedTemporaryFile() for _ in range(a.ranks)]
    for rank in range(a.ranks):
        enter = [*hosts.SUDO, "ip", "netns", "exec", names[rank // there]] if names else []
        variables = {"RANK": rank, "WORLD_SIZE": a.ranks, "LOCAL_RANK": rank % there}
        variables |= {"LOCAL_WORLD_SIZE": there, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables |= {"OMP_NUM_THREADS": 1, "VLLM_PLUGINS": "hccl"}
        if names:
            variables |= {"MASTER_ADDR": "10.214.0.1", "GLOO_SOCKET_IFNAME": "eth0"}
            variables["VLLM_HOST_IP"] = f"10.214.0.{rank // there + 1}"
        command = ["taskset", "-c", str(cores[rank % len(cores)]), sys.executable, *sys.argv]
        ranks.append(
            subprocess.Popen(
                [*enter, *command, "--rank"],
                env={**os.environ, **{k: str(v) for k, v in variables.items()}},
                stdout=outputs[rank],  # not a pipe: a rank would block on a full pipe
                stderr=subprocess.STDOUT,
            )
        )
    try:
        [each.wait(timeout=1800) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
        for left in pathlib.Path("/dev/shm").glob("*-tp_own-*"):
            left.unlink()
    texts = [pathlib.Path(output.name).read_text() for output in outputs]
    said = [[x[6:] for x in text.splitlines() if x.startswith("said: ")] for text in texts]
    assert all(len(lines) == 2 * a.rounds for lines in said), [x[-4000:] for x in texts]
    return [[json.loads(line) for line in lines] for lines in said]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--hosts", type=int, default=1, choices=[1, 2])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=16)
    p.add_argument("--rank", action="store_true")
    a = p.parse_args()
    if a.rank:
        rank_main(a)
    with hosts.two_hosts("1gbit") if a.hosts > 1 else contextlib.nullcontext([]) as names:
        said = run(names, a)
    tokens = said[0][0][1]
    assert all(each[1] == tokens for rank in said for each in rank), "the tokens differ"
    count = PROMPTS * a.tokens
    print(f"{a.ranks} ranks, {a.hosts} hosts: the same {count} tokens in {a.rounds} rounds;", end=" ")
    print(f"{len({each for text in tokens for each in text})} of them differ from each other")
    print("| | tokens/s | s in collectives | us of a call: a tenth, half, nine tenths | s in queues |")
    print("|---|---:|---:|---:|---:|")
    for name in ("own", "hccl"):
        rounds = [same for same in zip(*said, strict=True) if same[0][0] == name]
        speeds = [count / max(each[2] for each in same) for same in rounds]
        inside = [statistics.mean(sum(each[3]) for each in same) for same in rounds]
        waits = [statistics.mean(each[4] for each in same) for same in rounds]
        # The last rank that enters a call waits for no other rank, so its time is the shortest.
        calls = [min(x) for same in rounds for x in zip(*(each[3] for each in same), strict=True)]
        shares = statistics.quantiles(calls, n=10)
        us = ", ".join(f"{shares[i] * 1e6:.0f}" for i in (0, 4, 8))
        row = [name, spread(speeds, 1), spread(inside, 3), us, spread(waits, 3)]
        print(f"| {' | '.join(row)} |")
    print(f"{len(said[0][0][3])} calls a round; load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
