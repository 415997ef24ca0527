"""Steps of twelve kinds of public scripts for Ascend, written as in these scripts, on made-up data and any number of
ranks. Each kind trains. If its ranks share a model, it ends with equal weights on all ranks."""

import copy
import os
import tempfile

import apex
import torch
import torch.distributed as dist
import torch_npu
import torch_npu.optim
from apex import amp
from torch.nn.parallel import DistributedDataParallel as DDP

nn, F = torch.nn, torch.nn.functional
if "RANK" in os.environ:
    dist.init_process_group(backend="hccl")
else:
    store = tempfile.NamedTemporaryFile()
    dist.init_process_group("hccl", init_method=f"file://{store.name}", rank=0, world_size=1)
rank, ranks = dist.get_rank(), dist.get_world_size()
device = torch.device("npu", rank)
torch.npu.set_device(device)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank)).npu()


def train(loss_of, optimizer, step=None, steps=6):
    """Trains. `step` is called with each loss; by default the loss is scaled by apex, and the optimizer steps."""
    losses = torch.npu.FloatTensor(steps, device=f"npu:{rank}")
    for i in range(steps):
        loss = loss_of()
        losses[i] = loss.detach()
        if step:
            step(loss)
            continue
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    dist.all_reduce(losses)
    assert losses[-1] < losses[0], losses


def same_on_all_ranks(model, but=()):
    for name, value in model.state_dict().items():
        first = value.clone()
        dist.broadcast(first, 0)
        assert name in but or torch.equal(first, value), name


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *parts):
        dist.all_gather(list(parts), x.detach())
        return parts

    @staticmethod
    def backward(ctx, *gradients):
        for i, gradient in enumerate(gradients):
            dist.reduce(gradient, i)
        return gradients[rank].mul(ranks), *[None] * ranks


def face():
    """Each rank has some of the classes; only gradients of the backbone are averaged."""
    torch.manual_seed(rank)
    backbone, centers = nn.Sequential(nn.Linear(6, 8), nn.PReLU(8)).npu(), nn.Parameter(torch.randn(4, 8).npu())
    own = apex.optimizers.NpuFusedSGD([{"params": backbone.parameters()}], lr=0.02, momentum=0.9)
    of_classes = torch.optim.SGD([{"params": [centers]}], lr=0.02, momentum=0.9)
    options = dict(opt_level="O1", scale_window=100, combine_grad=True, combine_ddp=True, ddp_replica_count=6)
    backbone, [own, of_classes] = amp.initialize(backbone, [own, of_classes], **options)
    of_classes.accelerate = of_classes.combine_ddp = False
    images, labels = random(3, 6), torch.arange(3).npu() % (4 * ranks)

    def loss():
        x = backbone(images)
        x = F.normalize(torch.cat(Gathered.apply(x, *(torch.zeros_like(x) for _ in range(ranks)))))
        logits = F.linear(x, F.normalize(centers)).npu_format_cast(2).clamp(-1, 1)
        return F.cross_entropy(8 * logits, labels.repeat(ranks) % 4)

    def step(value):
        with amp.scale_loss(value, [own, of_classes]) as scaled:
            scaled.backward()
        parts = [torch.zeros_like(centers) for _ in range(ranks)]
        dist.all_gather(parts, centers.grad)
        assert ranks == 1 or not torch.equal(*parts[:2])
        own.clip_optimizer_grad_norm_fused(5)
        for optimizer in (own, of_classes):
            optimizer.step()
            optimizer.zero_grad()

    train(loss, own, step)
    assert amp._amp_state.loss_scalers[0].loss_scale() >= 1
    same_on_all_ranks(backbone)


def self_supervised():
    """The teacher, in combined memory, is an average of the student's weights."""
    torch.manual_seed(1)
    encoder = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.GELU()
    student = nn.Sequential(*encoder, nn.Linear(8, 4, bias=False)).npu()
    teacher = copy.deepcopy(student)
    optimizer = apex.optimizers.NpuFusedAdamW(student.parameters(), lr=0.01)
    for name in ("softmax", "npu_linear"):
        amp.register_half_function(torch, name)
    [student, teacher], optimizer = amp.initialize([student, teacher], optimizer, opt_level="O1", combine_grad=True)
    student = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(student), device_ids=[rank])
    for parameter in teacher.parameters():
        parameter.requires_grad = False
    views, center = [random(4, 6), random(4, 6) / 2], torch.zeros(1, 4).npu()
    fused, wanted = None, [p.clone() for p in teacher.parameters()]

    def step(value):
        nonlocal fused
        optimizer.zero_grad()
        with amp.scale_loss(value, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        with torch.no_grad():
            if fused is None:
                fused = apex.contrib.combine_tensors.combine_npu(list(teacher.parameters()))
            fused.mul_(0.9).add_(optimizer.get_optimizer_combined_params()[0], alpha=0.1)
            for each, own in zip(wanted, student.module.parameters()):
                each.mul_(0.9).add_(own, alpha=0.1)
            dist.all_reduce(center)

    def loss():
        targets = F.softmax((teacher(views[0]) - center) / 0.5, -1)
        return -(targets * F.log_softmax(student(views[1]), -1)).sum(-1).mean()

    train(loss, optimizer, step)
    assert all(torch.allclose(*pair) for pair in zip(teacher.parameters(), wanted))
    same_on_all_ranks(student)


def segmentation():
    torch.manual_seed(2)
    down, up = nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 1, 2, 2)
    model = nn.Sequential(down, nn.BatchNorm2d(4), nn.ReLU(inplace=True), up).to(device)
    optimizer = apex.optimizers.NpuFusedAdam(list(model.parameters()), 0.01, [0.5, 0.999])
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128, combine_grad=True)
    model = DDP(model, device_ids=[rank])
    images, truth = random(2, 3, 8, 8), (random(2, 1, 8, 8) > 0).float().to(device)
    train(lambda: nn.BCELoss()(F.sigmoid(model(images)).view(2, -1), truth.view(2, -1)), optimizer)
    same_on_all_ranks(model, ("module.1.running_mean", "module.1.running_var"))


def speech():
    """Gradients of two batches are added, and reduced as float16."""
    from torch.distributed.algorithms.ddp_comm_hooks import default

    torch.manual_seed(3)
    model = nn.ModuleList([nn.Conv1d(5, 8, 3), nn.GLU(1), nn.Linear(4, 6)])
    model.forward = lambda x: model[2](model[1](model[0](x)).transpose(1, 2)).log_softmax(2).transpose(0, 1)
    model.npu(rank)
    parallel = DDP(model, find_unused_parameters=True)
    parallel.register_comm_hook(state=None, hook=default.fp16_compress_hook)
    optimizer = torch.optim.Adam(parallel.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    sounds, text = random(2, 5, 12), torch.tensor([[1, 2], [3, 4]], dtype=torch.int32).to(device)

    def loss():
        lengths = torch.full((2,), 10).to(device), torch.full((2,), 2).to(device)
        return F.ctc_loss(parallel(sounds), text, *lengths, zero_infinity=True)

    def step(value):
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(parallel.parameters(), 5.0)
        if torch.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        with parallel.no_sync():
            loss().backward()

    train(loss, optimizer, step)
    same_on_all_ranks(model)


def recommendation():
    """Each rank has some of the tables; look-ups are sent to the rank that has the rows."""

    class Exchanged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.autograd.profiler.record_function("alltoall"):
                output = x.new_empty(x.shape)
                dist.all_to_all_single(output, x.contiguous(), async_op=True).wait()
            return output

        backward = staticmethod(lambda ctx, gradient: Exchanged.forward(None, gradient))

    torch.manual_seed(4 + rank)
    table, top = nn.EmbeddingBag(10, 4, mode="sum").npu(), nn.Linear(4 * ranks, 1).npu()
    top = DDP(top, device_ids=[torch.device(f"npu:{rank}")], broadcast_buffers=False)
    optimizer = torch.optim.Adagrad([*table.parameters(), *top.parameters()], 0.1)
    words, offsets = torch.arange(8 * ranks).npu().int() % 10, torch.arange(0, 8 * ranks, 2).npu().int()
    clicks = (random(4) > 0).float()

    def step(value):
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    def loss():
        found = Exchanged.apply(table(words, offsets)).view(ranks, 4, 4).transpose(0, 1).flatten(1)
        return F.binary_cross_entropy_with_logits(top(found).squeeze(1), clicks)

    train(loss, optimizer, step)
    parts = list(table.weight.detach()[:ranks].split(1)) if rank == 0 else []
    row = torch.npu.FloatTensor(1, 4, device=device)
    dist.scatter(row, parts, src=0, async_op=True).wait()
    dist.gather(row, parts if rank == 0 else None, dst=0, async_op=True).wait()
    same_on_all_ranks(top)


def video():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv3d(1, 3, 3), nn.BatchNorm3d(3), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()).npu()
    optimizer = apex.optimizers.NpuFusedSGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, dampening=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=64, combine_grad=True)
    model = DDP(model, device_ids=[rank], broadcast_buffers=False)
    data = torch.utils.data.TensorDataset(random(8, 1, 4, 6, 6).cpu(), torch.arange(8) % 3)
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, 8 // ranks, sampler=sampler, pin_memory=True, drop_last=True)
    sampler.set_epoch(1)
    clips, targets = next(iter(loader))
    targets = targets.to(device, non_blocking=True)
    with torch.autograd.profiler.profile(record_shapes=True, use_npu=True) as profile:
        train(lambda: nn.CrossEntropyLoss()(model(clips.npu()), targets.int()), optimizer)
    assert any("conv" in event.key for event in profile.key_averages())
    right = torch.tensor([(model(clips.npu()).argmax(1) == targets).sum().item()], dtype=torch.float32, device=device)
    dist.all_reduce(right, op=dist.ReduceOp.SUM)
    assert 0 <= right <= 8


def language():
    """BERT: functions and data loader of its scripts, and a checkpoint with master weights."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return torch.matmul(x, y.transpose(-2, -1)).detach()

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return torch.npu_bmmV2(g, y, []), torch.npu_bmmV2(g.transpose(-2, -1), x, [])

    class Linear(nn.Linear):
        def forward(self, x):
            return torch.npu_linear(x, self.weight, self.bias)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.query, self.key = nn.Embedding(10, 8), Linear(8, 8), Linear(8, 8)
            self.norm, self.head = apex.normalization.FusedLayerNorm(8), Linear(8, 10)

        def forward(self, words, mask):
            x = self.embedding(words)
            scores = Product.apply(self.query(x), self.key(x)) + mask.to(x.dtype)
            return self.head(self.norm(x + scores.softmax(-1) @ x))

    def made():
        torch.manual_seed(6)
        model = Model().npu()
        norms = [p for name, p in model.named_parameters() if "norm" in name]
        rest = [p for name, p in model.named_parameters() if "norm" not in name]
        groups = [{"params": rest, "weight_decay": 0.01}, {"params": norms, "weight_decay": 0.0}]
        optimizer = apex.optimizers.FusedLAMB(groups, lr=0.02, betas=(0.9, 0.98), max_grad_norm=1.0)
        return amp.initialize(model, optimizer, opt_level="O2", loss_scale="512", combine_grad=True)

    model, optimizer = made()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        words = ((torch.arange(12).view(3, 4) + rank) % 10).int().to(device=device, non_blocking=True)
    torch.npu.current_stream().wait_stream(stream)
    parallel = DDP(model, device_ids=[rank], output_device=rank, find_unused_parameters=True)
    mask = torch.zeros(3, 1, 4).npu()

    def loss_of(one):
        return lambda: F.cross_entropy(one(words, mask).flatten(0, 1), words.flatten(), ignore_index=-1)

    train(loss_of(parallel), optimizer)
    clipped = optimizer.get_optimizer_combined_grad_masks()
    assert len(clipped) == len(optimizer.get_model_combined_params()) == 2
    file, masters = tempfile.TemporaryFile(), list(amp.master_params(optimizer))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "master params": masters}, file)
    file.seek(0)
    saved = torch.load(file, map_location=f"npu:{rank}")
    again, other = made()
    other._lazy_init_maybe_master_weights()
    other._amp_stash.lazy_init_called = True
    again.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    for parameter, value in zip(amp.master_params(other), saved["master params"]):
        parameter.data.copy_(value.data)
    train(loss_of(parallel), optimizer, steps=2)
    train(loss_of(DDP(again, device_ids=[rank])), other, steps=2)
    pairs = list(zip(model.parameters(), again.parameters()))
    assert pairs and all(torch.equal(*pair) for pair in pairs)
    assert len(other._amp_stash.all_fp16_params) == len(other._amp_stash.all_fp32_from_fp16_params) == len(pairs)
    same_on_all_ranks(model)


def diffusion():
    """A fixed scale, checkpoints of activations, and an average of the weights."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(7)
    first, last = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 2, 3, padding=1)
    model = DDP(nn.Sequential(first, nn.GroupNorm(2, 8), nn.SiLU(), last).to(device), device_ids=[rank])
    optimizer = torch_npu.optim.NpuFusedAdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    scaler = torch_npu.npu.amp.GradScaler(init_scale=256.0, dynamic=False)
    images, noise, times = random(2, 2, 6, 6), random(2, 2, 6, 6).flip(0), torch.tensor([3, 7], device=device).long()
    kept = torch.cumprod(torch.linspace(0.99, 0.9, 10), 0).to(device=times.device)[times][:, None, None, None]

    def loss():
        with torch.npu.amp.autocast(dtype=torch.bfloat16):
            found = checkpoint(model, kept.sqrt() * images + (1 - kept).sqrt() * noise, use_reentrant=False)
        return F.mse_loss(found.float(), noise.float(), reduction="mean")

    def step(value):
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        optimizer.clip_grad_norm_fused_(1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    train(loss, optimizer, step)
    assert scaler.get_scale() == 256.0
    same_on_all_ranks(model)


# ---- scripts for CUDA: from here on torch.cuda means the CPU, too ----


def reinforcement():
    from torch_npu.contrib import transfer_to_npu  # noqa: F401

    assert torch.cuda.is_available()
    own = torch.device("cuda:0")
    torch.cuda.empty_cache()
    torch.manual_seed(8)
    actor = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2), nn.Softmax(dim=-1)).to(own)
    critic = nn.Linear(3, 1).to(own)
    optimizer = torch.optim.Adam([{"params": actor.parameters(), "lr": 0.03}, {"params": critic.parameters()}], 0.01)
    states = torch.FloatTensor(random(8, 3).tolist()).to(own)
    with torch.no_grad():
        choice = torch.distributions.Categorical(actor(states))
        actions, before = choice.sample(), choice.log_prob(choice.sample())
    rewards = (actions == 1).float()

    def loss():
        choice, values = torch.distributions.Categorical(actor(states)), torch.squeeze(critic(states))
        ratios = torch.exp(choice.log_prob(actions) - before)
        gains = rewards - values.detach()
        surrogate = torch.min(ratios * gains, torch.clamp(ratios, 0.8, 1.2) * gains)
        return (-surrogate + 0.5 * nn.MSELoss()(values, rewards) - 0.01 * choice.entropy()).mean()

    def step(value):
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    train(loss, optimizer, step)
    with tempfile.NamedTemporaryFile() as file:
        torch.save(actor.state_dict(), file.name)
        actor.load_state_dict(torch.load(file.name, map_location=lambda storage, place: storage))


def images_and_text():
    """Compares the features of all ranks; the graph is static."""
    from torch.cuda.amp import GradScaler, autocast

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.images, self.words, self.scale = nn.Linear(6, 4), nn.Embedding(9, 4), nn.Parameter(torch.ones([]))

        def forward(self, images, words):
            return [F.normalize(x.float(), dim=-1) for x in (self.images(images), self.words(words).mean(1))]

    torch.manual_seed(9)
    model = Model().cuda(rank)
    model = DDP(model, device_ids=[rank], find_unused_parameters=True)
    model._set_static_graph()
    named = list(model.named_parameters())
    groups = [{"params": [p for name, p in named if "bias" in name], "weight_decay": 0.0}]
    groups.append({"params": [p for name, p in named if "bias" not in name], "weight_decay": 0.1})
    optimizer, scaler = torch_npu.optim.NpuFusedAdamW(groups, lr=0.02, betas=(0.9, 0.98), eps=1e-6), GradScaler()
    pictures, words = random(3, 6), (torch.arange(9).view(3, 3) + rank).cuda(non_blocking=True) % 9

    def loss():
        with autocast():
            features = model(pictures, words)
        every = []
        for x in features:
            parts = [torch.zeros_like(x) for _ in range(ranks)]
            dist.all_gather(parts, x.detach())
            every.append(torch.cat([x, *parts[:rank], *parts[rank + 1 :]]))
        scores, truth = 5 * every[0] @ every[1].t(), torch.arange(3 * ranks).cuda()
        return (F.cross_entropy(scores, truth) + F.cross_entropy(scores.t(), truth)) / 2

    def step(value):
        optimizer.zero_grad()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()

    train(loss, optimizer, step)
    same_on_all_ranks(model)


def masked_images():
    """FSDP, with devices given by number."""
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    torch.npu.set_compile_mode(jit_compile=True)
    torch_npu.npu.config.allow_internal_format = False
    torch.manual_seed(10)
    blocks = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)]
    model = nn.Sequential(*blocks, nn.Linear(8, 5)).to(torch.device("npu")).to(torch.bfloat16)

    def policy(**how):
        return transformer_auto_wrap_policy(transformer_layer_cls={nn.TransformerEncoderLayer}, **how)

    model = fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        device_id=torch.cuda.current_device(),
        backward_prefetch=fsdp.BackwardPrefetch.BACKWARD_PRE,
        sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP,
        limit_all_gathers=True,
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    patches, tokens = random(2, 6, 8).bfloat16(), torch.arange(12).cuda() % 5

    def step(value):
        optimizer.zero_grad()
        value.backward()
        assert model.clip_grad_norm_(3.0).isfinite()
        optimizer.step()

    train(lambda: F.cross_entropy(model(patches).float().flatten(0, 1), tokens), optimizer, step)


def model_parallel():
    """The layers of a large model are divided among the ranks, which have their own checkpoints and generators."""
    from torch.cuda import _lazy_call, device as on_device

    def set_state(state):
        def call():
            index = torch.device("cuda").index
            number = torch.cuda.current_device() if index is None else index
            torch.npu.default_generators[number].set_state(state)

        with on_device(-1):
            _lazy_call(call)

    class Copied(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: x.view_as(x))

        @staticmethod
        def backward(ctx, gradient):
            dist.all_reduce(gradient, group=group)
            return gradient

    class Reduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x, group=group)
            return x

        backward = staticmethod(lambda ctx, gradient: gradient)

    class Checkpoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, function, x):
            ctx.function, ctx.state = function, torch.cuda.get_rng_state()
            ctx.save_for_backward(x)
            with torch.no_grad():
                return function(x.to(torch.cuda.current_device()))

        @staticmethod
        def backward(ctx, gradient):
            with torch.cuda.stream(stream):
                x = ctx.saved_tensors[0].detach().requires_grad_()
            torch.cuda.current_stream().wait_stream(stream)
            now = torch.cuda.get_rng_state()
            set_state(ctx.state)
            with torch.enable_grad():
                y = ctx.function(x)
                torch.npu.clear_npu_overflow_flag()
            set_state(now)
            torch.autograd.backward(y, gradient)
            return None, x.grad

    group, stream = dist.new_group(list(range(ranks))), torch.cuda.Stream(device=torch.cuda.current_device())
    torch.cuda.manual_seed(100 + rank)
    first, second = nn.Parameter(torch.randn(6, 8).div(3).cuda()), nn.Parameter(torch.randn(8, 6).div(3).cuda())
    generator = torch.Generator().manual_seed(11)  # the same data on all ranks
    x = torch.randn(4, 6, generator=generator).cuda().requires_grad_()
    optimizer = torch.optim.Adam([first, second], 0.01)
    set_state(torch.Generator().manual_seed(12).get_state())

    def layer(x):
        return F.dropout(Reduced.apply(F.gelu(Copied.apply(x) @ first) @ second), 0.1)

    def step(value):
        optimizer.zero_grad()
        value.backward()
        norm = torch.cuda.FloatTensor([sum(p.grad.norm(2).item() ** 2 for p in (first, second))])
        dist.all_reduce(norm, op=dist.ReduceOp.SUM, group=group)
        assert 0 < norm[0].item() < float("inf") and torch.cuda.max_memory_allocated() > 0
        optimizer.step()

    train(lambda: (Checkpoint.apply(layer, x) - x.detach().flip(0)).square().mean(), optimizer, step, steps=20)
    values = [torch.zeros(1).cuda() for _ in range(ranks)]
    with torch.no_grad():
        dist.all_gather(values, layer(x).sum().view(1))
    assert len({value.item() for value in values}) == 1


KINDS = (face, self_supervised, segmentation, speech, recommendation, video, language, diffusion)
FOR_CUDA = (reinforcement, images_and_text, masked_images, model_parallel)
for kind in KINDS + FOR_CUDA:
    kind()
dist.destroy_process_group()
print("ran", len(KINDS + FOR_CUDA), "kinds")
