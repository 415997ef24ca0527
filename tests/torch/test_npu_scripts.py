"""Programs with the calls of public scripts for Ascend, started as those scripts are."""

import json
import os
import socket
import subprocess
import sys

import pytest
from conftest import run

# Calls on one rank, of classifiers, GANs, speech and large models.
ALONE = """
import torch, torch_npu, torch.npu
from torch.npu.amp import GradScaler, autocast
from torch_npu.contrib.module import Mish, SiLU
device = int(os.environ["ASCEND_DEVICE_ID"])
if torch.npu.current_device() != device:
    torch.npu.set_device(f"npu:{device}")
assert torch.npu.current_device() == 3 and torch.npu.device_count() == 2
assert torch_npu.__version__ == torch.__version__.partition("+")[0]
noise = torch.randn(3, generator=torch.Generator(device="npu").manual_seed(7), device="npu:3")
assert torch.equal(noise, torch.randn(3, generator=torch.Generator().manual_seed(7)))
assert isinstance(torch.default_generator, torch.Generator)
assert torch.hann_window(4, device="npu").sum() == 2 and torch.tril_indices(2, 2, device="npu").shape == (2, 3)
torch.npu.default_generators[device].set_state(torch.npu.get_rng_state_all()[0])
with torch.random.fork_rng(devices=[device], device_type="npu"):
    first = torch.rand(1)
assert torch.equal(first, torch.rand(1))


def loss(x, target):
    right = torch.gather(x, 1, target.view(-1, 1)).sum() + torch.zeros(2).sum()
    return right + torch.nn.functional.cross_entropy(x, target)

x, target = torch.randn(3, 3), torch.tensor([0, 2, 1])
assert torch.equal(torch.jit.script(loss)(x, target), loss(x, target))
torch.save({"x": x}, "checkpoint")
assert torch.equal(torch.load("checkpoint", map_location=lambda storage, place: storage.npu(0))["x"], x)
x.npu().record_stream(torch.npu.current_stream())
torch.npu.clear_npu_overflow_flag()
assert torch.npu.utils.is_support_inf_nan() and torch.npu.is_bf16_supported(including_emulation=False)
profiler = torch_npu.profiler
config = profiler._ExperimentalConfig(aic_metrics=profiler.AiCMetrics.Memory, profiler_level=profiler.ProfilerLevel.Level1)
with profiler.profile(activities=profiler.supported_activities(), experimental_config=config,
                      on_trace_ready=profiler.tensorboard_trace_handler("traces", analyse_flag=True)):
    Mish()(x) + SiLU()(x)
assert os.listdir("traces")
from torch_npu.contrib import transfer_to_npu
assert x.type("torch.cuda.DoubleTensor").dtype == torch.float64
assert torch.cuda.get_device_capability() == (0, 0) and torch.Generator("cuda").device.type == "cpu"
with torch.random.fork_rng():
    torch.cuda.manual_seed_all(1)
"""

# A detector's loop: batch norms over the ranks, DDP by numbers of devices, its assertions on them.
DETECTOR = """
import torch, torch_npu, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
assert torch.npu.device_count() == 2 > rank
torch.npu.set_device(rank)
dist.init_process_group("hccl", world_size=2, rank=rank, device_id=torch.device("npu", rank))
model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).to(torch.device("npu", rank))
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], broadcast_buffers=False)
model(torch.full((1, 1, 4, 4), float(rank))).sum().backward()
both = [torch.zeros(2) for _ in range(2)]
dist.all_gather(both, model.module[1].running_mean)
assert torch.equal(*both) and both[0].abs().sum() > 0
"""

# BERT: the ranks differ in everything, and combine_ddp takes the place of DDP.
BERT = """
import torch, torch_npu, apex, torch.distributed as dist
from apex import amp
dist.init_process_group(backend="hccl", **arguments)
rank = dist.get_rank()
torch.manual_seed(rank)
line = torch.nn.Linear(1, 1, bias=False)
optimizer = apex.optimizers.NpuFusedSGD(line.parameters(), lr=0.5)
line, optimizer = amp.initialize(line, optimizer, opt_level="O2", loss_scale=4.0, combine_grad=True, combine_ddp=True)
for average in (1.5, 3.0):
    with amp.scale_loss(line(torch.full((1, 1), rank + 1.0)).sum(), optimizer) as scaled:
        scaled.backward()
    assert [weight.grad.item() for weight in amp.master_params(optimizer)] == [average]
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).npu()
optimizer = apex.optimizers.NpuFusedSGD(model.parameters(), lr=0.5)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=64.0, combine_grad=True, combine_ddp=True)
before = model[2].weight.clone()
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4).npu()), torch.tensor([rank] * 8, dtype=torch.int32))
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
for name, value in model.named_parameters():
    both = [torch.zeros_like(value) for _ in range(2)]
    dist.all_gather(both, value.detach())
    assert torch.equal(*both), name
assert not torch.equal(model[2].weight, before)
"""

# Ranks that the script starts itself.
SPAWNING = f"""
import torch, torch_npu, torch.multiprocessing

def work(rank, size):
    arguments = dict(world_size=size, rank=rank)
    exec(BERT, dict(arguments=arguments))

BERT = {BERT!r}
if __name__ == "__main__":
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = sys.argv[1]
    torch.multiprocessing.spawn(work, nprocs=2, args=(2,))
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def script(folder, text):
    path = folder / "script.py"
    path.write_text(f"import os, sys\nos.chdir({str(folder)!r})\n{text}\nprint('done')\n")
    return path


LAUNCH = ("-m", "torch.distributed.launch", "--standalone", "--nproc_per_node=2", "--use_env")


@pytest.mark.parametrize(
    ("text", "launcher", "ranks", "environment"),
    [
        (ALONE, (), 1, {"ASCEND_DEVICE_ID": "3", "ASCEND_RT_VISIBLE_DEVICES": "2,3"}),
        (DETECTOR, LAUNCH, 2, {"HCCL_WHITELIST_DISABLE": "1", "HCCL_IF_IP": "127.0.0.1"}),
    ],
)
def test_calls_of_scripts(tmp_path, text, launcher, ranks, environment):
    path = script(tmp_path, text)
    done = run([sys.executable, *launcher, "-m", "hccl.torch", path], **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("done") == ranks


def test_ranks_that_a_script_spawns(tmp_path):
    """The script is started as a module; its processes import it again."""
    script(tmp_path, SPAWNING)
    command = [sys.executable, "-m", "hccl.torch", "-m", "script", free_port()]
    done = run(command, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ranks_of_a_rank_table(tmp_path):
    """RANK_ID and RANK_SIZE number them, and the table has the address."""
    devices = [{"device_id": str(i), "device_ip": "127.0.0.1", "rank_id": str(i)} for i in range(2)]
    table = {"version": "1.0", "server_count": "1", "status": "completed"}
    table["server_list"] = [{"server_id": "127.0.0.1", "device": devices}]
    (tmp_path / "table.json").write_text(json.dumps(table))
    path = script(tmp_path, "arguments = {}\n" + BERT)
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    more = {"RANK_TABLE_FILE": str(tmp_path / "table.json"), "RANK_SIZE": "2", "MASTER_PORT": free_port()}
    command = [sys.executable, "-m", "hccl.torch", str(path)]
    ranks = [
        subprocess.Popen(
            command,
            env={**clean, **more, "RANK_ID": str(i), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]
    outputs = [each.communicate(timeout=120)[0] for each in ranks]
    assert [each.returncode for each in ranks] == [0, 0], outputs
