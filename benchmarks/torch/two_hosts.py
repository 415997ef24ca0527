"""What the benchmarks of a training step between two hosts share. Two ranks run in network namespaces."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "split" / "models" / "resnet50.json"
ADDRESS = "10.213.0.1"  # the address of the first host of split/run.py


def add_options(parser):
    parser.add_argument(
        "--compute",
        choices=["sleep", "busy"],
        default="sleep",
        help="sleep: as an accelerator would compute; busy: on the rank's core",
    )
    parser.add_argument("--json", help="a file for all times")


def run_case(given, gbit):
    """Runs this program on two hosts. Returns what rank 0 found, and the planner's report on the ranks' traces."""
    sys.path.insert(0, str(HERE.parent / "split"))
    from run import Hosts

    with tempfile.TemporaryDirectory() as folder, Hosts(2, gbit) as hosts:
        ranks = []
        for number in range(2):
            environment = {
                **os.environ,
                "RANK": str(number),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": ADDRESS,
                "MASTER_PORT": "29511",
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
                "HCCL_CONNECT_TIMEOUT": "60",
                "RESULT": folder,
            }
            command = ["ip", "netns", "exec", hosts.name(number), sys.executable, *sys.argv]
            ranks.append(subprocess.Popen(command, env=environment))
        if any([each.wait() for each in ranks]):
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: a rank failed")
        found = json.loads(pathlib.Path(folder, "times.json").read_text())
        report = pathlib.Path(folder, "plan.json")
        traces = [f"{folder}/{number}.pb" for number in range(2)]
        subprocess.run(
            [given.hccl_plan, *traces, "-k", "64", "--json", report],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return found, json.loads(report.read_text())


def run(given, rank, case, show):
    """Runs rank(given) if this process is a rank; otherwise case(given, gbit) for each speed of the line."""
    if "RANK" in os.environ:
        return rank(given)
    results = []
    for gbit in given.gbit:
        results.append(case(given, gbit))
        show(results[-1])
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results))
