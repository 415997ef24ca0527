"""Ascend's names for devices, profilers and parallel modules, on one rank and on two."""

import sys
import tempfile

import pytest
import torch
import torch.distributed as dist
from conftest import HEAD, check, on_ranks, run, torchrun

def test_devices_streams_and_memory():
    text = """
npu = torch.npu
npu.set_device(0); npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"}); npu.set_compile_mode(jit_compile=False)
npu.config.allow_internal_format = npu.matmul.allow_hf32 = npu.conv.allow_hf32 = False
for name in ("global_step_inc", "enable_graph_mode", "launch_graph", "disable_graph_mode", "empty_cache"):
    getattr(npu, name)()
first, second = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
with npu.stream(npu.Stream()) as stream:
    first.record()
    x = npu.FloatTensor([1.0, 2.0]) + 1
    stream.record_event(second)
    npu.current_stream().wait_stream(stream)
for stream in (torch.Stream(device="npu"), torch.Stream("npu:0"), torch.Stream(), npu.Stream(0)):
    event = stream.record_event()
    with stream:
        stream.wait_event(event), stream.synchronize(), event.synchronize()
    assert isinstance(stream, torch.Stream) and isinstance(stream, npu.Stream) and stream.query()
for event in (torch.Event(device="npu", enable_timing=True), torch.Event(torch.device("npu"), enable_timing=True)):
    event.record(stream), event.wait(stream)
    assert isinstance(event, torch.Event) and 0 <= first.elapsed_time(event) < 60e3
assert torch.Stream == type(stream) and torch.Stream("meta").device.type == "meta"
npu.synchronize()
assert x.tolist() == [2.0, 3.0] and 0 <= first.elapsed_time(second) < 60e3 and second.query()
before = npu.memory_allocated()
big = torch.ones(64 << 20, device="npu:0", dtype=torch.uint8)
assert npu.memory_allocated() > before + (16 << 20)  # others may take pages of libraries away
assert npu.max_memory_allocated() >= npu.memory_allocated() > 64 << 20
assert "MiB" in npu.memory_summary() and npu.memory_stats()["allocated_bytes.all.peak"] > 64 << 20
del big
npu.reset_peak_memory_stats()
free, total = npu.mem_get_info()
assert 0 < free <= total == npu.get_device_properties(0).total_memory and npu.get_device_name(0)
from torch_npu.npu.utils import npu_check_overflow
assert not npu_check_overflow([x]) and npu_check_overflow([x, x / 0])
import io, pickle
assert pickle.loads(pickle.dumps(torch.device("npu:0"))) == torch.device("cpu")
torch.save({"device": torch.device("npu", index=0)}, io.BytesIO())
assert torch.device(type="npu") == torch.device("npu", index=3) == torch.device("cpu")
state = npu.get_rng_state("npu:0")
first_numbers = torch.rand(3)
npu.set_rng_state(state, device=0)
assert torch.equal(first_numbers, torch.rand(3))
try:
    npu.Event().elapsed_time(first)
except RuntimeError as error:
    print(error)
"""
    assert "must be recorded" in check(text)


def test_profilers(tmp_path):
    text = f"""
import glob, json
with torch.autograd.profiler.profile(use_npu=True) as profile:
    torch.ones(8, 8) @ torch.ones(8, 8)
assert any(event.key == "aten::mm" for event in profile.key_averages())
with torch_npu.profiler.profile(
        activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
        schedule=torch_npu.profiler.schedule(wait=0, warmup=1, active=1),
        experimental_config=torch_npu.profiler._ExperimentalConfig(profiler_level=torch_npu.profiler.ProfilerLevel.Level1),
        on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(r"{tmp_path}/a")) as profile:
    for _ in range(2):
        torch.ones(8, 8) @ torch.ones(8, 8)
        profile.step()
with torch.npu.profile(r"{tmp_path}/b"):
    torch.ones(8, 8) @ torch.ones(8, 8)
from torch_npu.utils.profiler import Profile
for kind in (None, "TORCH"):
    Profile._one = None
    profile = Profile(start_step=2, profile_type=kind, save_path=r"{tmp_path}/c" + str(kind))
    for step in range(4):
        profile.start()
        torch.ones(8, 8) @ torch.ones(8, 8)
        profile.end()
for folder in ("a", "b", "cTORCH"):
    (path,) = glob.glob(rf"{tmp_path}/{{folder}}/*.json")
    with open(path) as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("aten::mm") == 1, (folder, names)
assert not glob.glob(r"{tmp_path}/cNone/*")
"""
    check(text)


def test_apex_optimizers_and_layers():
    text = """
import apex, apex.optimizers, apex.normalization
from apex.contrib.combine_tensors import combine_npu
from apex.parallel import DistributedDataParallel as DDP, convert_syncbn_model
assert not isinstance(torch.nn.Linear(2, 2), DDP)
for refused in (lambda: convert_syncbn_model(torch.nn.BatchNorm2d(3), channel_last=True),
                lambda: DDP(torch.nn.Linear(2, 2), gradient_average=False)):
    try:
        refused()
    except RuntimeError:
        continue
    raise AssertionError
weights = [torch.ones(3, requires_grad=True) for _ in range(4)]
pairs = [
    (torch.optim.AdamW(weights[:1], 0.1, weight_decay=0.1), apex.optimizers.FusedAdam(weights[1:2], 0.1, weight_decay=0.1)),
    (torch.optim.SGD(weights[2:3], 0.1, 0.9), apex.optimizers.FusedSGD(weights[3:], 0.1, 0.9, materialize_master_grads=True)),
]
for _ in range(3):
    for weight in weights:
        weight.grad = weight.detach() * 2
    for optimizer in sum(pairs, ()):
        optimizer.step()
assert torch.allclose(weights[0], weights[1]) and torch.allclose(weights[2], weights[3])
assert isinstance(apex.normalization.FusedLayerNorm(4), torch.nn.LayerNorm)
"""
    check(text)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norms_over_all_ranks(affine):
    """Outputs, gradients and statistics are those of one batch norm over the whole batch."""
    data = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0)) + 30

    def work(rank):
        from hccl.torch.npu import _parallel

        torch.nn.SyncBatchNorm = _parallel.SyncBatchNorm
        layers = torch.nn.Sequential(torch.nn.BatchNorm1d(3, affine=affine))
        layers = _parallel.convert_syncbn_model(layers).train()
        x = (data[:4] if rank == 0 else data[4:]).clone().requires_grad_()
        y = layers(x)
        (y**3).sum().backward()
        state = layers.state_dict()
        kept = [state["0.running_mean"], state["0.running_var"]]
        grads = [p.grad for p in layers.parameters()]
        for each in grads:
            dist.all_reduce(each)
        layers.eval()
        tensors = [y, x.grad, *kept, *grads, layers(x)]
        return [each.detach().tolist() for each in tensors]

    layer = torch.nn.BatchNorm1d(3, affine=affine)
    x = data.clone().requires_grad_()
    y = layer(x)
    (y**3).sum().backward()
    first, second = on_ranks(2, work)

    def close(got, wanted):
        torch.testing.assert_close(torch.tensor(got), wanted.detach(), rtol=1e-3, atol=1e-3)

    close(first[0] + second[0], y)
    close(first[1] + second[1], x.grad)
    wanted = [layer.running_mean, layer.running_var, *(p.grad for p in layer.parameters())]
    for got, expected in zip(first[2:-1], wanted):
        close(got, expected)
    close(first[-1], layer.eval()(data[:4]))


def test_batch_norms_do_not_wait_in_eval():
    """One rank evaluates alone. Existing statistics are used, whatever the value of track_running_stats."""
    x = torch.arange(8.0).view(4, 2)

    def work(rank):
        from hccl.torch.npu import _parallel

        kept = _parallel.SyncBatchNorm(2)
        kept.track_running_stats = False
        without = _parallel.SyncBatchNorm(2, track_running_stats=False)
        if rank == 0:
            return [layer.eval()(x).tolist() for layer in (kept, without)]
        return None

    answers, _ = on_ranks(2, work)
    batch_norm = torch.nn.functional.batch_norm
    wanted = [batch_norm(x, torch.zeros(2), torch.ones(2)), batch_norm(x, None, None, training=True)]
    torch.testing.assert_close(torch.tensor(answers), torch.stack(wanted).detach())


def test_ddp_takes_devices_of_npus(tmp_path):
    """DDP as scripts write it, with torch.distributed.launch's variables; O2, equal weights on both ranks."""
    program = tmp_path / "script.py"
    program.write_text("""
import os, torch, torch_npu, apex
import torch.distributed as dist
from apex import amp
from apex.parallel import convert_syncbn_model
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group(backend="hccl", world_size=2, rank=rank)
device = torch.device(f"npu:{rank}")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 2))
model = convert_syncbn_model(model).to(device)
optimizer = apex.optimizers.NpuFusedSGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128.0, combine_grad=True)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], output_device=rank, broadcast_buffers=False)
losses = []
for step in range(30):
    torch.manual_seed(2 * step + rank)
    x = torch.randn(8, 1, 8, 8).to(device, non_blocking=True)
    y = (x.mean((1, 2, 3)) > 0).long().npu()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    losses.append(loss.item())
assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), losses
for name, value in model.module.state_dict().items():
    both = [torch.empty_like(value) for _ in range(2)]
    dist.all_gather(both, value)
    assert torch.equal(*both), name
dist.destroy_process_group()
print("done")
""")
    done = torchrun(2, "--standalone", "-m", "hccl.torch", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"] * 2


def test_groups_of_npus_run_on_hccl():
    """Tensors of NPUs are tensors of the CPU, so a group has one backend, that of NPUs. "gloo" alone still means
    Gloo."""
    text = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def kind(group=None):
    group = group or dist.group.WORLD
    return dist.get_backend(group), type(group._get_backend(torch.device("npu"))).__name__

hccl, gloo = ("hccl", "ProcessGroupHccl"), ("gloo", "ProcessGroupGloo")
one = dict(rank=0, world_size=1)
for backend, wanted in (
    (None, hccl), ("npu:hccl,cpu:gloo", hccl), ("cpu:gloo,npu:hccl", hccl), ("npu:hccl", hccl), ("hccl", hccl),
    ("gloo", gloo), ("npu:gloo,cpu:gloo", gloo)):
    dist.init_process_group(backend, store=dist.HashStore(), **one)
    assert kind() == kind(dist.new_group([0])) == wanted, (backend, kind())
    assert kind(dist.new_group([0], backend="cpu:gloo,npu:hccl")) == hccl
    assert kind(dist.new_group([0], backend="gloo")) == gloo
    dist.all_reduce(torch.ones(1).npu(), dist.ReduceOp.SUM)
    dist.destroy_process_group()
assert dist.get_default_backend_for_device("npu") == "hccl"
mesh = init_device_mesh("npu", (1,))
assert kind() == kind(mesh.get_group()) == hccl and mesh.device_type == "cpu"
dist.destroy_process_group()
from torch_npu.contrib import transfer_to_npu
dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), **one)
assert kind() == hccl
assert init_device_mesh("cuda", (1,)).device_type == "cpu"
dist.destroy_process_group()
"""
    check(text, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")


def test_random_numbers_of_dtensors():
    """On NPUs, FSDP2 initializes the parameters of a "meta" module, with fork_rng and device modules."""
    text = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
with torch.device("meta"):
    model = torch.nn.Linear(8, 8)
fully_shard(model)
model.to_empty(device="npu")
model.reset_parameters()
assert 0 < model.weight.full_tensor().std() < 1
x = distribute_tensor(torch.ones(64).npu(), init_device_mesh("npu", (1,)), [Shard(0)])
assert set(torch.nn.functional.dropout(x).full_tensor().tolist()) == {0.0, 2.0}
for how in (dict(), dict(device_type="npu"), dict(devices=[0], device_type="npu:0"), dict(enabled=False),
            dict(device_type=torch.device("npu").type)):
    with torch.random.fork_rng(**how):
        first = torch.rand(1)
    assert torch.equal(first, torch.rand(1)) == how.get("enabled", True)
assert torch.get_device_module("npu") is torch.npu and torch.get_device_module("cpu") is torch.cpu
dist.destroy_process_group()
"""
    check(text)


def test_whole_functions_with_autocast_are_compiled():
    text = """
def product(x):
    if torch.is_autocast_enabled("npu"):
        return x @ x + torch.ones(1, device="npu", dtype=torch.get_autocast_dtype("npu"))
    return x @ x

def in_autocast(x):
    with torch.npu.amp.autocast():
        return product(x), torch.is_autocast_enabled()

x = torch.ones(2, 2)
compiled, inner = (torch.compile(each, backend="eager", fullgraph=True) for each in (product, in_autocast))
for _ in range(2):
    assert compiled(x).dtype == torch.float32 and (compiled(x) == 2).all()
    with torch.npu.amp.autocast():
        assert compiled(x).dtype == torch.bfloat16 and (compiled(x) == 3).all()
    y, of_cuda = inner(x)
    assert y.dtype == torch.bfloat16 and (y == 3).all() and not of_cuda
"""
    check(text)


def test_functions_take_indices_of_32_bits():
    """Functions accept these indices like indices of 64 bits, by position and by name. The results of comparisons of
    transposed matrices can be viewed."""
    text = """
F = torch.nn.functional
x, y = torch.randn(4, 5), torch.tensor([0, 4, 2, 1])
rows = y.view(4, 1)
for call in (
    lambda i: torch.nn.CrossEntropyLoss()(x, i),
    lambda i: F.cross_entropy(input=x, target=i),
    lambda i: F.nll_loss(F.log_softmax(x, 1), i),
    lambda i: F.one_hot(i, 5),
    lambda i: F.embedding(i, x.repeat(2, 1)),
    lambda i: x.gather(1, i.view(4, 1)),
    lambda i: torch.gather(x, dim=1, index=i.view(4, 1)),
    lambda i: torch.zeros(4, 5).scatter_(1, i.view(4, 1), 1.0),
    lambda i: torch.zeros(4, 5).scatter_add_(1, i.view(4, 1), x),
    lambda i: torch.zeros(5, 5).index_add_(0, i, x),
    lambda i: torch.zeros(5, 5).index_copy_(0, i, x),
    lambda i: torch.take(x, i),
    lambda i: torch.take_along_dim(x, i.view(4, 1), 1),
    lambda i: x.index_select(1, i),
    lambda i: x[torch.arange(4), i],
):
    assert torch.equal(call(y), call(y.int()))
predicted = x.topk(3, 1)[1].t()
for equal in (predicted.eq(y.view(1, -1)), predicted == y, torch.eq(predicted, y.expand_as(predicted))):
    assert equal[:2].view(-1).tolist() == (predicted[:2].reshape(-1) == y.repeat(2)).tolist()
with torch.device("meta"):
    assert torch.zeros(2).is_meta and torch.nn.Linear(2, 2).weight.is_meta
assert type(torch.device("npu")) == torch.device and torch.get_autocast_dtype("npu") == torch.bfloat16
assert F.one_hot(input=y.int(), num_classes=5).sum() == 4
assert torch.zeros(2, device="npu").new_ones(3, device="npu:1").tolist() == [1, 1, 1]
assert torch.zeros(2).to(0).type("torch.npu.LongTensor").pin_memory().dtype == torch.int64 and torch.device(0).type == "cpu"
try:
    torch.zeros(2).type("torch")
except ValueError as error:
    assert "invalid type" in str(error)
"""
    check(text)


def test_every_function_that_takes_a_device():
    """If a function's schema has a device, the function returns the same on "npu:0" as without a device."""
    text = """
t = torch.tensor
ARGUMENTS = {
    "arange": (3,), "range": (0, 2), "as_tensor": ([1.0],), "tensor": ([1.0],), "asarray": ([1.0],), "eye": (2,),
    "zeros": (2,), "ones": (2,), "empty": (0,), "rand": (2,), "randn": (2,), "randperm": (4,), "randint": (5, (3,)),
    "full": ((2,), 3.0), "normal": (0.0, 1.0, (2,)), "scalar_tensor": (2.0,), "linspace": (0, 1, 3),
    "logspace": (0, 1, 3), "empty_strided": ((0, 2), (2, 1)), "empty_permuted": ((0, 2), (1, 0)),
    "tril_indices": (2, 2), "triu_indices": (2, 2), "fftfreq": (4,), "rfftfreq": (4,),
    "sparse_coo_tensor": (t([[0]]), t([1.0])), "nested_tensor": ([t([1.0])],), "as_nested_tensor": ([t([1.0])],),
    "sparse_csr_tensor": (t([0, 1]), t([0]), t([1.0])), "sparse_csc_tensor": (t([0, 1]), t([0]), t([1.0])),
    "sparse_bsr_tensor": (t([0, 1]), t([0]), t([[[1.0]]])), "sparse_bsc_tensor": (t([0, 1]), t([0]), t([[[1.0]]])),
    "new_zeros": (2,), "new_ones": (2,), "new_empty": (0,), "new_full": ((2,), 3.0), "new_tensor": ([1.0],),
    "new_empty_strided": ((0, 2), (2, 1)), "new": (0,), "from_file": (sys.argv[1], False, 2),
    **{f"{name}_window": (4,) for name in ("bartlett", "blackman", "hann", "hamming", "kaiser")},
    **{f"{name}_like": (t([1.0]),) for name in ("zeros", "ones", "rand", "randn")},
    "full_like": (t([1.0]), 2.0), "randint_like": (t([1.0]), 5), "empty_like": (t([]),),
    "sparse_compressed_tensor": (t([0, 1]), t([0]), t([1.0])), "empty_quantized": None,
}
OPTIONS = {"sparse_compressed_tensor": dict(layout=torch.sparse_csr)}
names = {"new", "new_tensor", "asarray", "nested_tensor", "as_nested_tensor"}
for schema in torch._C._jit_get_all_schemas():
    space, _, name = schema.name.partition("::")
    if space == "aten" and name[0] != "_" and str(schema.returns[:1][0].type if schema.returns else "") == "Tensor":
        if any("Device" in str(each.type) for each in schema.arguments):
            names.add(name.removeprefix("fft_"))
looked_for = set()
for owner in (torch, torch.Tensor, torch.fft, torch.nested):
    for name in sorted(names - {"to", "pin_memory"}):
        if not hasattr(owner, name) or ARGUMENTS[name] is None:
            continue
        call = getattr(t([5.0]) if owner is torch.Tensor else owner, name)
        options = OPTIONS.get(name, {})
        made = []
        for device in ({}, {"device": "npu:0"}):
            torch.manual_seed(0)
            made.append(call(*ARGUMENTS[name], **options, **device))
        assert made[0].device == made[1].device and made[0].layout == made[1].layout, name
        parts = [each.unbind() if each.is_nested else [each.to_dense()] for each in made]
        assert all(torch.equal(*pair) for pair in zip(*parts)), name
        looked_for.add(name)
assert len(looked_for) > 45, sorted(looked_for)
assert torch.UntypedStorage(4, device="npu:0").to(device="npu").nbytes() == 4
for kind in (torch.npu.HalfTensor, "torch.npu.HalfTensor"):
    assert torch.ones(2).type(dtype=kind).dtype == torch.ones(2).type(kind).dtype == torch.half
    assert torch.nn.Linear(1, 1).type(dst_type=kind).weight.dtype == torch.half
for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
    typed = getattr(torch.npu, f"{name}Tensor")
    x = typed([1, 0])
    assert x.tolist() == [1, 0] and isinstance(x, typed) and typed(2, 3).shape == (2, 3)
    for device in ("npu", "npu:1", 1, torch.device("npu:0")):
        assert typed(2, 3, device=device).shape == (2, 3) and typed([1, 0], device=device).dtype == typed.dtype == x.dtype
for default in (torch.npu.DoubleTensor, "torch.npu.FloatTensor"):
    torch.set_default_tensor_type(default)
    assert torch.ones(1).type() == default.replace("npu.", "") if isinstance(default, str) else torch.ones(1).dtype == torch.double
assert torch.amp.is_autocast_available("npu") and torch.nn.LSTM(1, 1, device="npu:0").weight_ih_l0.is_npu
torch.set_autocast_dtype("npu", torch.float16), torch.set_autocast_enabled("npu", True)
assert torch.is_autocast_enabled("npu") and torch.get_autocast_dtype("npu") == torch.float16
assert torch.nn.utils.rnn.pack_sequence([torch.ones(1)]).npu().data.tolist() == [1]
"""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(8))
        file.flush()
        done = run([sys.executable, "-W", "ignore", "-c", "import sys\n" + HEAD + text, file.name])
    assert done.returncode == 0, done.stderr


def test_checkpoints_of_npus(tmp_path):
    """The storages in these checkpoints name the NPU that wrote them."""
    text = f"""
real = torch.serialization.location_tag
torch.serialization.location_tag = lambda storage: "npu:3"
torch.save({{"x": torch.arange(3)}}, r"{tmp_path}/checkpoint")
torch.serialization.location_tag = real
for location in (None, "npu:0", {{"npu:3": "npu:0"}}, torch.device("npu:1"), lambda storage, location: storage):
    x = torch.load(r"{tmp_path}/checkpoint", map_location=location)["x"]
    assert x.tolist() == [0, 1, 2] and x.device.type == "cpu"
"""
    check(text)


def test_transfer_to_npu(tmp_path):
    """A script for CUDA and nccl, on two ranks; before the import nothing of CUDA is changed."""
    program = tmp_path / "script.py"
    program.write_text("""
import os, torch, torch_npu
assert not torch.cuda.is_available()
from torch_npu.contrib import transfer_to_npu
import torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
dist.init_process_group("nccl", init_method="env://")
assert torch.cuda.is_available() and dist.is_nccl_available() and dist.get_backend() == "hccl"
group = dist.new_group([0, 1], backend="nccl")
model = torch.nn.Linear(2, 2).cuda(rank).to("cuda:0").to(rank)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], output_device=rank)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.arange(8.0).view(4, 2) + rank)
scaler = torch.cuda.amp.GradScaler()
for (x,) in torch.utils.data.DataLoader(data, 2, num_workers=1, pin_memory=True):
    with torch.cuda.amp.autocast():
        loss = model(x.cuda(non_blocking=True)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
with torch.cuda.stream(torch.cuda.Stream()):
    x = torch.cuda.FloatTensor([rank + 1.0])
torch.cuda.synchronize()
dist.all_reduce(x, group=group)
assert x.is_cuda and x.item() == 3 and torch.zeros(1, device=torch.device("cuda", 0)).device.type == "cpu"
assert torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 1])(torch.ones(1, 2)).shape == (1, 2)
dist.broadcast(x, 0)
objects = [rank, "text"] if rank == 0 else [None, None]
dist.broadcast_object_list(objects, 0)
assert objects == [0, "text"] and torch.cuda.get_device_capability() == (0, 0)
with torch.random.fork_rng(), torch.cuda.device(rank):
    torch.rand(1)
sums = [torch.zeros(1) for _ in range(2)]
dist.all_gather(sums, sum(weight.detach().sum() for weight in model.parameters()).view(1))
assert sums[0] == sums[1]
dist.destroy_process_group()
""")
    done = torchrun(2, "--standalone", "-m", "hccl.torch", program)
    assert done.returncode == 0, done.stdout + done.stderr
