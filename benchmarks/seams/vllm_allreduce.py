"""Times the allreduce of vLLM's tensor-parallel group with vLLM's own communicator and with hccl, in turn. Prints
microseconds for each call.

vllm_allreduce.py [--ranks N] [--rounds R], with the Python of .venv-vllm. Sums are checked.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

TOKENS = (1, 8, 64, 512)  # with a hidden size of 2,048 in bf16, a token has 4 KiB
SECONDS = 0.3  # for one size in one round


def rank_main(rank: int, ranks: int, port: str) -> None:
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.platforms import current_platform

    torch.set_num_threads(1)
    current_platform.import_kernels()
    os.environ["VLLM_DIST_IDENT"] = port
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            ranks, rank, f"tcp://127.0.0.1:{port}", rank, current_platform.dist_backend
        )
        parallel_state.initialize_model_parallel(ranks)
    group = parallel_state.get_tp_group().device_communicator
    result = {}
    for tokens in TOKENS:
        data = torch.full((tokens, 2048), float(rank + 1), dtype=torch.bfloat16)
        total = group.all_reduce(data.clone())
        assert total.eq(ranks * (ranks + 1) / 2).all()
        data.zero_()
        times = []
        # All ranks make the same number of calls. With this number the slowest communicator takes a second or two.
        for _ in range(int(SECONDS / (20e-6 * (1 + tokens / 4)))):
            begin = time.perf_counter()
            group.all_reduce(data)
            times.append(time.perf_counter() - begin)
        result[tokens] = statistics.median(times) * 1e6
    if rank == 0:
        print("said:", json.dumps(result), flush=True)
    parallel_state.destroy_distributed_environment()
    os._exit(0)


def run(plugins: str, ranks: int) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "VLLM_PLUGINS": plugins, "OMP_NUM_THREADS": "1"}
    cores = sorted(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            ["taskset", "-c", str(cores[rank % len(cores)])]
            + [sys.executable, __file__, "--rank", str(rank), port, "--ranks", str(ranks)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    texts = [each.communicate(timeout=600) for each in started]
    said = [x for x in texts[0][0].splitlines() if x.startswith("said: ")]
    if not said:
        sys.exit("\n".join(error[-3000:] for _, error in texts))
    return json.loads(said[0][6:])


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--rank", nargs=2)
    a = p.parse_args()
    if a.rank:
        rank_main(int(a.rank[0]), a.ranks, a.rank[1])
    rounds = [(run("none", a.ranks), run("hccl", a.ranks)) for _ in range(a.rounds)]
    print(f"| tokens | bytes | vLLM's own, us | hccl, us | ratio of medians, {a.ranks} ranks |")
    print("|---|---|---|---|---|")
    for tokens in map(str, TOKENS):
        own, ours = (statistics.median(each[i][tokens] for each in rounds) for i in (0, 1))
        print(f"| {tokens} | {int(tokens) * 4096} | {own:.1f} | {ours:.1f} | {ours / own:.2f} |")


if __name__ == "__main__":
    main()
