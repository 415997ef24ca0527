#!/usr/bin/env python3
"""run.py [options]: measures the gain of gradient fusion for real networks, by strategy, with real allreduces.

Each rank is a process. In the limited cases each rank has its own host: a network namespace on a
bridge. tbf limits the line of each host in both directions (needs root for `ip netns` and `tc`). In
the unlimited case all ranks are on this host. Prints a table, and writes all figures as JSON."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODELS = ("resnet50", "bert_base", "vgg16", "gpt2_small", "mobilenet_v1")
UNLIMITED = report.UNLIMITED
MTU = 9000
CONGESTION_CONTROL = "cubic"  # Linux's default, independent of this host's setting
LONGEST_ITERATION = 0.4  # seconds; a model with longer iterations is shrunk: its times and its gradients
RESULTS = os.path.join(ROOT, "benchmarks", "results")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", default=",".join(MODELS), help="default: %(default)s")
    parser.add_argument("--ranks", default="2,4", help="default: %(default)s")
    parser.add_argument("--networks", default=f"1,10,{UNLIMITED}",
                        help="Gbit/s of each rank's line, or unlimited; default: %(default)s")
    parser.add_argument("--scale", type=float, default=10,
                        help="divide the gradients and the rate of the line by this, so that few cores can send as "
                             "many cores would; times stay what they are; not applied to unlimited; default: %(default)s")
    parser.add_argument("--iterations", type=int, default=10, help="of each strategy, at most; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=110,
                        help="of each case, after which no further iterations begin; default: %(default)s")
    parser.add_argument("--learning", type=int, default=200,
                        help="iterations before the automatic plan counts; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="ResNet-50 and BERT-base, 2 ranks, 10 Gbit/s, 5 iterations")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "split.json"), help="default: %(default)s")
    parser.add_argument("--results", action="store_true",
                        help="write benchmarks/results/split.json and split.md instead of --out")
    parser.add_argument("--add", action="store_true", help="keep the cases of an earlier run that are not measured again")
    parser.add_argument("--report", metavar="JSON", help="only print the tables and bars of an earlier run")
    given = parser.parse_args()
    if given.quick:
        given.models, given.ranks, given.networks = "resnet50,bert_base", "2", "10"
    if given.results:
        given.out = os.path.join(RESULTS, "split.json")
    return given


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"run.py: {' '.join(command)}: {done.stderr.strip()}")


def allow_congestion_control():
    """Allows the congestion control on this host, because a network namespace can choose only
    algorithms that its host allows."""
    path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
    with open(path, encoding="ascii") as file:
        allowed = file.read().split()
    if CONGESTION_CONTROL not in allowed:
        with open(path, "w", encoding="ascii") as file:
            file.write(" ".join([*allowed, CONGESTION_CONTROL]))


class Hosts:
    """Network namespaces as hosts on one bridge; each line carries `gbit` Gbit/s in each direction."""

    def __init__(self, count, gbit):
        self.tag = f"hs{os.getpid() % 100000}"
        self.count = count
        self.gbit = gbit
        self.made = []

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        allow_congestion_control()
        bridge = self.tag + "b"
        run("ip", "link", "add", bridge, "type", "bridge")
        self.made.append(("link", bridge))
        run("ip", "link", "set", bridge, "up")
        for host in range(self.count):
            name, outside = self.name(host), f"{self.tag}v{host}"
            run("ip", "netns", "add", name)
            self.made.append(("netns", name))
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            self.made.append(("link", outside))
            run("ip", "link", "set", outside, "master", bridge, "up")
            run("ip", "-n", name, "addr", "add", f"10.213.0.{host + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}")
            # The burst has at least the 64 KB that the kernel gives to a line in one piece (network cards cut such a
            # piece into packets). With a smaller burst, tbf itself cuts the pieces, at the cost of a core. The queue is
            # long, so that no packet is lost.
            burst = max(70000, int(self.gbit * 1e9 / 8 * 50e-6))
            limit = ["tbf", "rate", f"{self.gbit * 1000:.3f}mbit", "burst", str(burst), "limit", "33554432"]
            run("ip", "-n", name, "link", "set", "eth0", "mtu", str(MTU))
            run("ip", "link", "set", outside, "mtu", str(MTU))
            run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *limit)
            run("tc", "qdisc", "add", "dev", outside, "root", *limit)

    def name(self, host):
        return f"{self.tag}-{host}"

    def __exit__(self, *_):
        for kind, name in reversed(self.made):
            subprocess.run(["ip", kind, "del", name], capture_output=True, check=False)


def replay(given, model, ranks, prefix, address, shrink=1.0):
    """Starts all ranks; prefix(rank) is the beginning of a rank's command. Returns the figures of rank 0."""
    program = os.path.join(given.build, "benchmarks", "split_replay")
    processes = []
    one_host = address == "127.0.0.1"
    scale = 1 if one_host else given.scale
    path = os.path.join(HERE, "models", model + ".json")
    # Binds each rank to a core, as mpirun does. If there are more ranks than cores, the cores get equal numbers of
    # ranks.
    cores = sorted(os.sched_getaffinity(0))
    for rank in range(ranks):
        environment = dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank if one_host else 0),
            LOCAL_WORLD_SIZE=str(ranks if one_host else 1), MASTER_ADDR=address,
            MASTER_PORT="29517", TORCHELASTIC_RUN_ID=f"split{os.getpid()}", HCCL_SPLIT="auto",
            HCCL_CONNECT_TIMEOUT="60", HCCL_EXEC_TIMEOUT="300")
        command = [*prefix(rank), "taskset", "--cpu-list", str(cores[rank % len(cores)]), program, "--model", path, "--scale", str(scale),
                   "--shrink", f"{shrink:.2f}", "--seconds", str(given.seconds), "--share", str(min(1, len(cores) / ranks)),
                   "--iterations", str(given.iterations), "--learning", str(given.learning),
                   "--trace", os.path.join(given.build, "split_trace")]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    answers = [process.communicate() for process in processes]
    failed = [f"rank {rank}: {error.strip()}" for rank, (process, (_, error)) in enumerate(zip(processes, answers))
              if process.returncode]
    if failed:
        sys.exit(f"run.py: {model} on {ranks} ranks failed:\n" + "\n".join(failed))
    sys.stderr.write(answers[0][1])  # the log of rank 0 has the plans
    return json.loads(answers[0][0])


def shrink_for(model, ranks, gbit):
    """Returns the factor that shrinks the model, so that its longest iteration, the one without
    overlap, stays below the limit."""
    with open(os.path.join(HERE, "models", model + ".json"), encoding="utf-8") as file:
        data = json.load(file)
    size = 4 * sum(gradient["elements"] for gradient in data["gradients"])
    seconds = data["step_ms"] / 1e3 + size * 2 * (ranks - 1) / ranks * 8 / (gbit * 1e9)
    return max(1.0, seconds / LONGEST_ITERATION)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.machine(), "cores": os.cpu_count(),
            "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
            "kernel": platform.release(), "load": os.getloadavg()[0]}


def one_case(given, model, ranks, network):
    if network == UNLIMITED:
        result = replay(given, model, ranks, lambda rank: [], "127.0.0.1")
    else:
        with Hosts(ranks, float(network) / given.scale) as hosts:
            result = replay(given, model, ranks, lambda rank: ["ip", "netns", "exec", hosts.name(rank)], "10.213.0.1",
                            shrink_for(model, ranks, float(network)))
    result["network"] = network
    result["cores"] = len(os.sched_getaffinity(0))
    return result


def write(given, results):
    os.makedirs(os.path.dirname(os.path.abspath(given.out)), exist_ok=True)
    with open(given.out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    if given.results:
        with open(os.path.join(RESULTS, "split.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(report.page(results)))


def main():
    given = arguments()
    if given.report:
        with open(given.report, encoding="utf-8") as file:
            print("\n".join(report.page(json.load(file))))
        return
    networks = given.networks.split(",")
    if os.geteuid() and networks != [UNLIMITED]:
        os.execvp("sudo", ["sudo", "-n", sys.executable, *sys.argv])
    cases = [(model, ranks, network) for model in given.models.split(",") for ranks in map(int, given.ranks.split(","))
             for network in networks]
    command = " ".join(["benchmarks/split/run.py", *sys.argv[1:]])
    results = {"command": command, "machine": machine(), "cases": []}
    if given.add and os.path.exists(given.out):
        with open(given.out, encoding="utf-8") as file:
            earlier = json.load(file)
        results["command"] = earlier["command"] + " and " + command
        results["cases"] = earlier["cases"]
    begin = time.monotonic()
    for number, (model, ranks, network) in enumerate(cases, 1):
        result = one_case(given, model, ranks, network)
        which = ("model", "ranks", "network")
        results["cases"] = [case for case in results["cases"] if any(case[key] != result[key] for key in which)]
        results["cases"].append(result)
        print("\n".join(report.table(result)), flush=True)
        print(f"run.py: {number} of {len(cases)} cases after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        write(given, results)
    print("\n".join(report.bars(results["cases"])))


if __name__ == "__main__":
    main()
