"""Measures training steps per second with TensorFlow: with this library, Horovod, MultiWorkerMirroredStrategy and
without exchange.

    benchmarks/tensorflow/bench.sh [--ranks 2] [--rounds 5] [--models mlp,lenet] [--ways hccl,horovod]
    benchmarks/tensorflow/bench.sh --gbit 1     two ranks in network namespaces behind such a line; needs root

Each way runs all models in processes of its own, and the ways take turns, round by round; the table has medians over the
rounds. A model trains with SGD on a fixed batch in a tf.function; a figure is the best of three windows of a round on
the slowest rank. Each way with an exchange must end with the same weights on all ranks.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {  # name: (description, batch, steps of a window)
    "mlp": ("MLP 784-128-10", 32, 400),
    "lenet": ("LeNet", 32, 100),
    "wide": ("MLP 784-1024-1024-10", 32, 60),
    "deep": ("30 layers of 128", 16, 120),
    "resnet50": ("Keras ResNet-50 at 32x32", 4, 3),
}
WAYS = {
    "hccl": "hccl",
    "grouped": "hccl, one operation a list",
    "fused": "hccl, fused",
    "auto": "hccl, HCCL_SPLIT=auto",
    "horovod": "Horovod",
    "horovod_grouped": "Horovod, grouped",
    "mirrored": "MultiWorkerMirrored",
    "none": "no exchange",
}
WINDOWS = 3


def make_model(name):
    from tensorflow import keras

    layers = keras.layers
    if name == "resnet50":
        return keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=10)
    if name == "lenet":
        convolution = {"activation": "relu"}
        return keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(6, 5, padding="same", **convolution),
                layers.MaxPool2D(),
                layers.Conv2D(16, 5, **convolution),
                layers.MaxPool2D(),
                layers.Flatten(),
                layers.Dense(120, activation="relu"),
                layers.Dense(84, activation="relu"),
                layers.Dense(10),
            ]
        )
    sizes = {"mlp": [128], "wide": [1024, 1024], "deep": [128] * 30}[name]
    inputs = 128 if name == "deep" else 784
    hidden = [layers.Dense(size, activation="relu") for size in sizes]
    return keras.Sequential([layers.Input((inputs,)), *hidden, layers.Dense(10)])


class Exchange:
    """The exchange of gradients in one way, and this rank's number."""

    def __init__(self, way):
        self.strategy, self.reduce = None, lambda gradients: gradients
        if way == "mirrored":
            import tensorflow as tf

            rank = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))
            workers = os.environ["WORKERS"].split(",")
            task = {"type": "worker", "index": rank}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
            options = tf.distribute.experimental.CommunicationOptions(
                implementation=tf.distribute.experimental.CommunicationImplementation.RING
            )
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
            self.rank = rank
        elif way.startswith("horovod"):
            import horovod.tensorflow as hvd

            hvd.init()
            self.rank = hvd.rank()
            single = lambda gradients: [hvd.allreduce(each) for each in gradients]  # noqa: E731
            self.reduce = hvd.grouped_allreduce if way == "horovod_grouped" else single
        else:
            import hccl.tensorflow as hvd
            from hccl.tensorflow import _fusion

            hvd.init()
            self.rank = hvd.rank()
            if way in ("grouped", "fused"):
                _fusion.wanted = lambda *_: way == "fused"
            if way == "auto":
                hvd.trace_at_exit(os.environ["TRACES"])
            if way != "none":
                self.reduce = hvd.grouped_allreduce


def work(way, models):
    """Runs one round of one way. Prints {model: steps per second} of this rank as a line of JSON."""
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    exchange = Exchange(way)
    figures = {}
    for name in models:
        _, batch, steps = MODELS[name]
        tf.keras.utils.set_random_seed(1)
        step, model = make_step(name, batch, exchange)
        until_planned = 24 if name == "resnet50" else 60
        for _ in range(until_planned if "TRACES" in os.environ else 3):
            step()
        best = 0.0
        for _ in range(WINDOWS):
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            model.trainable_variables[0].numpy()
            best = max(best, steps / (time.perf_counter() - begin))
        total = sum(float(np.abs(v.numpy()).sum(dtype="float64")) for v in model.trainable_variables)
        figures[name] = (best, total)
    # Each rank prints its own figures, because ranks without an exchange may differ. The slowest rank counts.
    print(f"FIGURES {json.dumps(figures)}", flush=True)


def make_step(name, batch, exchange):
    import contextlib

    import numpy as np
    import tensorflow as tf

    numbers = np.random.default_rng(exchange.rank)
    with exchange.strategy.scope() if exchange.strategy else contextlib.nullcontext():
        model = make_model(name)
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    images = tf.constant(numbers.normal(size=(batch, *model.input_shape[1:])).astype("float32"))
    labels = tf.constant(numbers.integers(0, 10, batch))

    def train():
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = exchange.reduce(tape.gradient(loss, model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    if exchange.strategy is None:
        return tf.function(train), model
    return tf.function(lambda: exchange.strategy.run(train)), model


def run_round(way, ranks, models, hosts=None, folder=None):
    """Runs one way. Returns {model: steps per second} of the slowest rank."""
    sockets = [socket.socket() for _ in range(ranks)]
    for each in sockets:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    addresses = [f"10.213.0.{rank + 1}" if hosts else "127.0.0.1" for rank in range(ranks)]
    environment = {
        **os.environ,
        "WORKERS": ",".join(f"{address}:{port}" for address, port in zip(addresses, ports)),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, __file__, "--work", way, "--models", ",".join(models)]
    if hosts is None or way.startswith("horovod"):
        output = under_mpirun(command, ranks, environment, hosts, addresses, folder)
    else:
        output = on_hosts(command, environment, hosts, ports[0], folder, way)
    lines = re.findall(r"FIGURES (\{[^}]*\})", output)  # mpirun may join lines
    if len(lines) != ranks:
        sys.exit(f"{way}: {output[-6000:]}")
    figures = [json.loads(line) for line in lines]
    for name in models:
        totals = [each[name][1] for each in figures]
        if way != "none" and max(totals) - min(totals) > 1e-6 * max(totals):
            sys.exit(f"{way}, {name}: the ranks have different weights")
    return {name: min(each[name][0] for each in figures) for name in models}


def under_mpirun(command, ranks, environment, hosts, addresses, folder):
    start = ["mpirun", "--allow-run-as-root"]
    if hosts is None:
        binding = ["--bind-to", "core" if ranks <= (os.cpu_count() or 1) else "none"]
        start += ["--oversubscribe", *binding, "-np", str(ranks)]
    else:
        # mpirun calls this script in place of ssh. The script enters the namespace of the address.
        agent = pathlib.Path(folder, "agent")
        names = " ".join(f'[ "$1" = {a} ] && name={hosts.name(i)};' for i, a in enumerate(addresses))
        agent.write_text(f'#!/bin/sh\n{names} shift\nexec ip netns exec $name sh -c "$*"\n')
        agent.chmod(0o700)
        settings = {"plm_rsh_agent": str(agent), "btl": "tcp,self", "btl_tcp_if_include": "eth0",
                    "oob_tcp_if_include": "eth0", "hwloc_base_binding_policy": "none"}
        mca = [word for name, value in settings.items() for word in ("--mca", name, value)]
        start = ["ip", "netns", "exec", hosts.name(0), *start, *mca, "-H", ",".join(addresses), "-np", "2"]
        start += [word for name in ("WORKERS", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL") for word in ("-x", name)]
    done = subprocess.run([*start, *command], env=environment, capture_output=True, text=True, timeout=3600)
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


def on_hosts(command, environment, hosts, port, folder, way):
    secret = pathlib.Path(folder, "secret")
    if not secret.exists():
        secret.touch(0o600)
        secret.write_text(os.urandom(32).hex())
    started = []
    for rank in range(2):
        own = {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "10.213.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": str(port),
            "HCCL_JOB_SECRET_FILE": str(secret), "TRACES": folder,
        }
        if way == "auto":
            own["HCCL_SPLIT"] = "auto"
        if way == "none":
            own.update(WORLD_SIZE="1", RANK="0")
        place = ["ip", "netns", "exec", hosts.name(rank), "taskset", "-c", str(rank % (os.cpu_count() or 1))]
        started.append(subprocess.Popen([*place, *command], env={**environment, **own}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    outputs = [each.communicate(timeout=3600)[0] for each in started]
    return "".join(outputs)


def bounds(folder, models):
    """Returns {model: the most steps per second by the planner's bound}, from the traces of the last round."""
    found = {}
    for number, name in enumerate(models):
        traces = [f"{folder}/hccl_trace_rank{rank}_{number}.pb" for rank in range(2)]
        report = f"{folder}/plan.json"
        tool = pathlib.Path(os.environ.get("HCCL_BUILD_DIR", "build/release"), "split/plan_tool/hccl-plan")
        subprocess.run([tool, *traces, "-k", "64", "--json", report], check=True, stdout=subprocess.DEVNULL)
        found[name] = 1 / json.loads(pathlib.Path(report).read_text())["best"]["lower_bound"]
    return found


def show(found, ways, models, what, most):
    print(f"\n| {what}, steps a second | " + " | ".join(WAYS[way] for way in ways) + " | hccl to |")
    print("|" + "---|" * (len(ways) + 2))
    for name in models:
        row = {way: statistics.median(each[name] for each in found[way]) for way in ways}
        rivals = [row[way] for way in ways if way.startswith("horovod")]
        ratios = []
        if name in most and "auto" in row:
            ratios.append(f"auto to its bound {row['auto'] / most[name]:.3f}")
        if "hccl" in row:
            if rivals:
                ratios.append(f"Horovod {row['hccl'] / max(rivals):.2f}")
            if "mirrored" in row:
                ratios.append(f"Mirrored {row['hccl'] / row['mirrored']:.2f}")
            if "none" in row:
                ratios.append(f"none {row['hccl'] / row['none']:.2f}")
        cells = " | ".join(f"{row[way]:.2f}" for way in ways)
        print(f"| {MODELS[name][0]}, batch {MODELS[name][1]} | {cells} | {', '.join(ratios)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ways", default="hccl,horovod,horovod_grouped,mirrored,none")
    parser.add_argument("--gbit", type=float, help="two hosts, whose lines carry so much each way")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    models, ways = options.models.split(","), options.ways.split(",")
    if options.work:
        work(options.work, models)
        return
    if options.gbit is None:
        show(rounds(options, models, ways), ways, models, f"{options.ranks} ranks", {})
        return
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "split"))
    from run import Hosts

    with tempfile.TemporaryDirectory() as folder, Hosts(2, options.gbit) as hosts:
        found = rounds(options, models, ways, hosts, folder)
        most = bounds(folder, models) if "auto" in ways else {}
    show(found, ways, models, f"2 hosts, {options.gbit:g} Gbit/s", most)


def rounds(options, models, ways, hosts=None, folder=None):
    found = {way: [] for way in ways}
    for number in range(options.rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            print(f"round {number + 1} of {options.rounds}: {WAYS[way]}", file=sys.stderr, flush=True)
            found[way].append(run_round(way, 2 if hosts else options.ranks, models, hosts, folder))
    return found


if __name__ == "__main__":
    main()
