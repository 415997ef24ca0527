"""Names of newer scripts for Ascend: random states, checkpoints of NPUs, options of groups, streams, compilers, and the
Trainer of transformers."""

import sys

from conftest import check, run, torchrun

def test_each_thread_has_a_current_stream():
    text = """
import threading
npu = torch.npu
default, one, two = npu.default_stream(), npu.Stream(priority=-1), npu.Stream()
assert npu.current_stream() == default == npu.current_stream(0) and len({default, one, two}) == 3
with npu.stream(one) as entered:
    assert entered is one and npu.current_stream() == one != two
    with npu.stream(None), two:
        assert npu.current_stream() == two and npu.current_stream().stream_id == two.stream_id
    seen = []
    thread = threading.Thread(target=lambda: seen.append(npu.current_stream()))
    thread.start(), thread.join()
    assert seen == [default] and npu.current_stream() == one
    npu.set_stream(two)
    assert npu.current_stream() == two
assert npu.current_stream() == default and one != 1
low, high = npu.Stream.priority_range()
assert high <= low and npu.Event(True, False, False).query() and not npu.is_current_stream_capturing()
from torch_npu.npu.streams import Event, Stream
assert Stream is npu.Stream and Event is npu.Event
"""
    check(text)


def test_states_of_random_numbers():
    text = """
import torch_npu.npu.random as random
from torch.npu.random import get_rng_state_all, set_rng_state_all
random.manual_seed_all(3)
states, first = get_rng_state_all(), torch.rand(3)
with random.fork_rng(devices=[0], enabled=True):
    assert torch.equal(torch.rand(2), torch.rand(2)) is False
following = torch.rand(3)
set_rng_state_all(states)
assert torch.equal(first, torch.rand(3)) and torch.equal(following, torch.rand(3)) and random.initial_seed() == 3
from torch_npu.contrib import transfer_to_npu
assert torch.cuda.random.get_rng_state_all is random.get_rng_state_all
torch.cuda.random.set_rng_state(states[0])
assert torch.equal(first, torch.rand(3))
assert torch.cuda.memory.memory_reserved() > 0 and torch.cuda.current_stream().cuda_stream == 0
torch.cuda.memory.reset_peak_memory_stats()
with torch.cuda.nvtx.range("part {}", 1):
    torch.cuda.nvtx.range_push("inner"), torch.cuda.nvtx.range_pop()
doubled = torch.compile(lambda x: 2 * x, backend="eager", fullgraph=True)
assert doubled(torch.ones(2).cuda()).tolist() == [2, 2]
"""
    check(text)


def test_checkpoints_that_an_npu_wrote(tmp_path):
    """torch_npu pickles a tensor as a call of its own function; newer versions also pickle a format."""
    writer = """
import collections, enum, sys, types, torch
for name in ("torch_npu", "torch_npu.utils", "torch_npu.utils.storage", "torch_npu.npu", "torch_npu.npu._format"):
    sys.modules[name] = types.ModuleType(name)
def _rebuild_npu_tensor():
    pass
Format = enum.IntEnum("Format", {"ND": 2})
Format.__reduce_ex__ = lambda self, protocol: (Format, (int(self),))
for thing, module in ((_rebuild_npu_tensor, "torch_npu.utils.storage"), (Format, "torch_npu.npu._format")):
    thing.__module__ = module
    setattr(sys.modules[module], thing.__name__, thing)
form = 2
def reduced(x, protocol):
    parts = x.storage_offset(), tuple(x.shape), x.stride(), x.requires_grad, collections.OrderedDict(), form
    return _rebuild_npu_tensor, (x._typed_storage(), *parts)
torch.Tensor.__reduce_ex__ = reduced
whole = torch.arange(12.0).view(3, 4)
for form, path in ((2, sys.argv[1]), (True, sys.argv[2]), (Format.ND, sys.argv[3])):
    torch.save({"whole": whole, "part": whole.t()[1:3], "weight": torch.ones(2).half().requires_grad_()}, path)
"""
    paths = [str(tmp_path / name) for name in "abc"]
    done = run([sys.executable, "-c", writer, *paths])
    assert done.returncode == 0, done.stderr
    text = f"""
for path in {paths}:
    for how in (dict(map_location="npu:0"), dict(map_location="cpu", weights_only=True), dict(weights_only=False)):
        state = torch.load(path, **how)
        whole, part, weight = state["whole"], state["part"], state["weight"]
        assert whole.is_npu and torch.equal(whole, torch.arange(12.0).view(3, 4))
        assert torch.equal(part, whole.t()[1:3]) and part.stride() == (1, 4)
        assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        assert weight.dtype == torch.half and weight.requires_grad
"""
    check(text)


def test_options_and_names_of_groups(tmp_path):
    program = tmp_path / "script.py"
    program.write_text("""
import torch, torch_npu
import torch.distributed as dist
from torch_npu._C._distributed_c10d import ProcessGroupHCCL
options = ProcessGroupHCCL.Options()
options.hccl_config, options.op_timeout, options.anything = {"hccl_buffer_size": 200}, 3, 1
assert dist.is_hccl_available() and torch_npu.distributed.is_hccl_available()
assert not isinstance(None, ProcessGroupHCCL)
dist.init_process_group("hccl", pg_options=options)
more = dist.ProcessGroupHCCL.Options(is_high_priority_stream=True)
groups = [dist.group.WORLD, dist.new_group([0, 1], pg_options=more), dist.new_group(pg_options=options)]
names = []
for group in groups:
    backend = group._get_backend(torch.device("npu"))
    assert isinstance(backend, ProcessGroupHCCL)
    names.append(backend.get_hccl_comm_name(dist.get_rank()))
    assert group.get_hccl_comm_name(dist.get_rank(), init_comm=False) == names[-1]
    x = torch.ones(2).npu()
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2, 2]
every = [None, None]
dist.all_gather_object(every, names)
assert every[0] == every[1] and len(set(names)) == 3, every
gloo = dist.new_group(backend="gloo")
assert not isinstance(gloo._get_backend(torch.device("npu")), ProcessGroupHCCL)
try:
    gloo.get_hccl_comm_name(0)
except RuntimeError as error:
    print(error)
dist.destroy_process_group()
""")
    for debug in ("OFF", "DETAIL"):
        done = torchrun(2, "--standalone", "-m", "hccl.torch", program, TORCH_DISTRIBUTED_DEBUG=debug)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("the group has no communicator of HCCL") == 2


def test_tables_and_stacks_by_times_of_npus(tmp_path):
    text = f"""
profiler = torch_npu.profiler
with profiler.profile(profile_memory=True) as profile:
    number = torch.npu.mstx.range_start("all steps", torch.npu.current_stream())
    torch.npu.mstx.mark("begin")
    step = torch.npu.mstx.mstx_range("step")(lambda: torch.ones(64, 64) @ torch.ones(64, 64))
    step()
    torch.npu.mstx.range_end(number)
averages = profile.key_averages()
assert {{"aten::mm", "all steps", "begin", "step"}} <= {{each.key for each in averages}}
for key in ("self_npu_time_total", "npu_time_total", "npu_memory_usage"):
    assert averages.table(sort_by=key) == averages.table(sort_by=key.replace("npu", "cpu"))
for each in averages:
    each.stack = ["script.py(1): train"]  # PyTorch 2.13 cannot always read the stacks that it records
texts = []
for metric in ("self_npu_time_total", "self_cpu_time_total"):
    averages.export_stacks(r"{tmp_path}/stacks", metric)
    with open(r"{tmp_path}/stacks") as file:
        texts.append(file.read())
assert texts[0] == texts[1] != ""
from torch_npu.profiler.profiler import analyse
from torch_npu.profiler import dynamic_profile
dynamic_profile.init("configuration"), dynamic_profile.step(), analyse(r"{tmp_path}")
"""
    check(text)


def test_other_names_of_devices():
    text = """
npu = torch.npu
npu._lazy_init()
assert not npu._is_in_bad_fork() and npu.get_soc_version() == torch_npu._C._npu_get_soc_version() == -1
npu.memory._record_memory_history(max_entries=10)
npu.reset_max_memory_cached()
assert npu.memory._snapshot()["segments"] == [] and npu.memory.memory_allocated() > 0
stats = npu.memory_stats()
assert stats["num_ooms"] == stats["num_alloc_retries"] == stats["allocation.all.current"] == 0
npu.set_autocast_enabled(True), npu.set_autocast_dtype(torch.float16)
assert npu.is_autocast_enabled() and torch.is_autocast_enabled("npu")
assert npu.get_autocast_dtype() == torch.get_autocast_dtype("npu") == torch.float16
from torch_npu.npu.amp.autocast_mode import autocast, custom_fwd
from torch_npu.npu.amp.grad_scaler import GradScaler
from apex.normalization.fused_layer_norm import FusedLayerNorm
assert autocast is npu.amp.autocast and GradScaler is npu.amp.GradScaler and FusedLayerNorm(3)
assert torch.ops.npu.npu_rms_norm is torch_npu.npu_rms_norm
assert torch_npu.empty_with_format((2, 3), dtype=torch.half, device="npu", acl_format=29).shape == (2, 3)
"""
    check(text)


def test_compilers():
    """A host without a C++ compiler runs the functions as they are."""
    text = """
import torchair
from torchair.configs.compiler_config import CompilerConfig
config = CompilerConfig()
config.mode = "reduce-overhead"
config.experimental_config.frozen_parameter = True
for backend in ("npu", torchair.get_npu_backend(compiler_config=config)):
    tripled = torch.compile(lambda x: 3 * x, backend=backend, fullgraph=True)
    assert tripled(torch.ones(2).npu()).tolist() == [3, 3]
print(torchair.get_npu_backend())
"""
    assert check(text, PATH="/nowhere", CXX="none") == "eager\n"


def test_trainer_of_transformers_saves_and_resumes(tmp_path):
    """A run that continues from a checkpoint ends with the weights of a whole run, with dropout."""
    program = tmp_path / "script.py"
    program.write_text("""
import sys, torch, torch_npu
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
rows = [{"input_ids": torch.arange(i, i + 8) % 50, "labels": torch.tensor(i % 2)} for i in range(16)]

def trained(**how):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, **sizes))
    arguments = TrainingArguments(sys.argv[1], per_device_train_batch_size=2, max_steps=4, save_steps=2, report_to=[],
                                  disable_tqdm=True, ddp_find_unused_parameters=False, logging_steps=1)
    Trainer(model, arguments, train_dataset=rows).train(**how)
    return model.state_dict()

whole = trained()
assert torch.distributed.get_backend() == "hccl"
resumed = trained(resume_from_checkpoint=sys.argv[1] + "/checkpoint-2")
assert all(torch.equal(whole[name], resumed[name]) for name in whole)
torch.distributed.destroy_process_group()
""")
    done = torchrun(2, "--standalone", "-m", "hccl.torch", program, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
