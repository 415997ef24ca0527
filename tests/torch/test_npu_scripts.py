"""Programs with the calls of public scripts for Ascend, started as those scripts are."""

import json
import os
import socket
import subprocess
import sys

import pytest
from conftest import HERE, TIMEOUT, run, torchrun

# Many kinds of calls on one rank.
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

# Steps of other kinds of models, written as in their scripts; each trains.
KINDS = """
import copy, torch, torch_npu, apex
from apex import amp
from torch_npu.contrib.function import npu_ciou
from torch_npu.contrib.module import NpuPreGenDropout
from torch_npu.npu.amp import GradScaler, autocast
nn, F = torch.nn, torch.nn.functional
torch.npu.set_device("npu:0")


def train(loss_of, optimizer, steps=8):
    losses = []
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


def ocr():
    class CRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.rnn, self.head = nn.LSTM(8, 8, bidirectional=True), nn.Linear(16, 5)

        def forward(self, x):
            x = torch.relu(self.norm(self.conv(x))).mean(2).permute(2, 0, 1)
            return self.head(self.rnn(x)[0])

    model = CRNN().npu()
    optimizer = apex.optimizers.NpuFusedAdam(model.parameters(), lr=0.01)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128, combine_grad=True)
    images, text = torch.rand(2, 1, 8, 12).to("npu", non_blocking=True), torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    lengths = torch.IntTensor([12, 12]), torch.IntTensor([2, 2])
    train(lambda: nn.CTCLoss()(model(images).log_softmax(2), text.npu(), *lengths), optimizer)


def ssd():
    anchors = torch.rand(6, 2).npu().repeat(1, 2) * 10 + torch.tensor([0.0, 0, 4, 4]).npu()
    boxes = anchors + torch.rand(6, 4).npu()
    overlaps, numbers = torch_npu.npu_ptiou(anchors, boxes), [0.0] * 4 + [0.1, 0.1, 0.2, 0.2]
    best = torch_npu.npu_max(overlaps, dim=0)[1]
    targets = torch_npu.npu_bounding_box_encode(anchors, boxes[best.long()], *numbers)
    head = nn.Linear(4, 7).npu()
    optimizer = apex.optimizers.NpuFusedSGD(head.parameters(), lr=0.001, momentum=0.9)
    head, optimizer = amp.initialize(head, optimizer, opt_level="O1", loss_scale=32.0)

    def loss():
        found = head(anchors)
        return F.smooth_l1_loss(found[:, :4], targets) + F.cross_entropy(found[:, 4:], torch.arange(6).npu().int() % 3)

    train(loss, optimizer)
    shifts = head(anchors)[:, :4].detach()
    decoded = torch_npu.npu_bounding_box_decode(anchors, shifts, *numbers, (20, 20), 0.016)
    kept = torch_npu.npu_nms_with_mask(torch.cat((decoded, torch.rand(6, 1).npu()), 1), 0.5)[2]
    assert 1 <= kept.sum() <= 6


def yolo():
    class Model(nn.Sequential):
        def _apply(self, fn):  # its strides move with it
            self.stride = fn(self.stride) if hasattr(self, "stride") else torch.tensor([8.0, 16.0])
            return super()._apply(fn)

    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = Model(*layers).npu().float()
    average = copy.deepcopy(model).eval()
    optimizer = apex.optimizers.NpuFusedSGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128, combine_grad=True)
    images, goal = torch.rand(4, 3, 8, 8).npu(), torch.tensor([[0.5, 0.5, 0.4, 0.6]] * 4).npu()
    boxes = lambda: torch.sigmoid(model(images)).t()
    train(lambda: (1 - npu_ciou(boxes(), goal.t(), True)).mean(), optimizer)
    with torch.no_grad():
        for x, y in zip(average.state_dict().values(), model.state_dict().values()):
            if x.dtype.is_floating_point:
                x.mul_(0.9).add_(y, alpha=0.1)
    assert average.half()(images.half()).dtype == torch.float16


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(10, 8), layer, NpuPreGenDropout(0.1), nn.Linear(8, 10)).npu()
    optimizer = torch_npu.optim.NpuFusedAdam(model.parameters(), lr=0.01, betas=(0.9, 0.98))
    words = torch.randint(10, (4, 6), dtype=torch.int32).npu()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale="dynamic")
    train(lambda: F.cross_entropy(model(words).flatten(0, 1), words.flatten(), label_smoothing=0.1), optimizer)


def speech():
    window = torch.hann_window(16, device="npu:0")
    spectrum = torch.stft(torch.randn(2, 160).npu(), 16, 8, window=window, return_complex=True).abs().transpose(1, 2)
    model = nn.GRU(9, 6, batch_first=True).npu()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), 0.01), GradScaler(init_scale=64.0)
    lengths = torch.full((2,), 21).npu(), torch.tensor([2, 3]).npu()
    for _ in range(2):
        with autocast():
            scores = model(spectrum)[0].float().log_softmax(-1).transpose(0, 1)
            loss = F.ctc_loss(scores, torch.randint(1, 6, (2, 3)).npu(), *lengths, zero_infinity=True)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0).isfinite()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 64.0


def gan():
    maker, judge = nn.Linear(2, 4).npu(), nn.Linear(4, 1).npu()
    optimizers = [torch.optim.Adam(each.parameters(), 0.01, (0.5, 0.999)) for each in (judge, maker)]
    (judge, maker), optimizers = amp.initialize([judge, maker], optimizers, opt_level="O1", num_losses=3)
    criterion, before = nn.BCEWithLogitsLoss().npu(), judge.weight.clone()
    made = maker(torch.randn(3, 2, device="npu"))
    for loss_id, (x, label) in enumerate(((torch.randn(3, 4).npu(), 1.0), (made.detach(), 0.0), (made, 1.0))):
        loss = criterion(judge(x), torch.full((3, 1), label, device="npu"))
        with amp.scale_loss(loss, optimizers[loss_id == 2], loss_id=loss_id) as scaled:
            scaled.backward()
        if loss_id:
            optimizers[loss_id == 2].step()
    assert not torch.equal(before, judge.weight)


def large():
    size, heads, length = 16, 2, 4
    weights = [torch.randn(size, columns).div(4).npu().requires_grad_() for columns in (3 * size, 2 * size)]
    angles = torch.outer(torch.arange(length), 0.1 ** torch.arange(4)).repeat(1, 2)[None, None].npu()
    gamma, x = torch.ones(size).npu().requires_grad_(), torch.randn(1, length, size).npu().bfloat16().float()
    optimizer = torch_npu.optim.NpuFusedAdamW([*weights, gamma], lr=0.01)
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu()

    def loss():
        parts = (torch_npu.npu_rms_norm(x, gamma, epsilon=1e-6)[0] @ weights[0]).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        q, k = (torch_npu.npu_rotary_mul(part, angles.cos(), angles.sin()) for part in (q, k))
        how = dict(atten_mask=mask, scale=8**-0.5, sparse_mode=2)
        y = torch_npu.npu_fusion_attention(q, k, v, heads, "BNSD", **how)[0].transpose(1, 2).flatten(2)
        return (torch_npu.npu_swiglu(y @ weights[1], dim=-1) - x).square().mean()

    amp.initialize([], optimizer, opt_level="O0")
    train(loss, optimizer)


torch.manual_seed(0)
for kind in (ocr, ssd, yolo, transformer, speech, gan, large):
    kind()
"""

# A detector's loop: batch norms over all ranks, DDP with devices by number, and the script's assertions about them.
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

# BERT: at first all values differ between ranks. combine_ddp replaces DDP.
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

# The script itself starts the ranks.
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


@pytest.mark.parametrize(
    ("text", "environment"),
    [(ALONE, {"ASCEND_DEVICE_ID": "3", "ASCEND_RT_VISIBLE_DEVICES": "2,3"}), (KINDS, {})],
)
def test_calls_of_scripts(tmp_path, text, environment):
    done = run([sys.executable, "-m", "hccl.torch", script(tmp_path, text)], **environment)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_kinds_of_public_scripts(ranks):
    program = ["-m", "hccl.torch", HERE / "ranks" / "npu_kinds.py"]
    command = [sys.executable, *program]
    done = torchrun(ranks, "--standalone", *program) if ranks > 1 else run(command, limit=2 * TIMEOUT)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ran ")]
    assert (done.returncode, ended) == (0, ["ran 12 kinds"] * ranks), done.stdout + done.stderr


def test_calls_of_a_detector_by_the_old_launcher(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.launch", "--use_env", "--redirects", "3"]
    program = ["--standalone", "-m", "hccl.torch", script(tmp_path, DETECTOR)]
    done = torchrun(2, *program, launcher=launcher, HCCL_WHITELIST_DISABLE="1", HCCL_IF_IP="127.0.0.1")
    assert (done.returncode, done.stdout) == (0, "done\n" * 2), done.stdout + done.stderr


def test_ranks_that_a_script_spawns(tmp_path):
    """The script is started as a module. Its processes import the module again."""
    script(tmp_path, SPAWNING)
    command = [sys.executable, "-m", "hccl.torch", "-m", "script", free_port()]
    done = run(command, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ranks_of_a_rank_table(tmp_path):
    """RANK_ID and RANK_SIZE number the ranks. The address is in the table."""
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
