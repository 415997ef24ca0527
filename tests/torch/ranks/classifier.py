"""A classifier that is trained as in scripts for Ascend: apex O2, NpuFusedSGD, checkpoints, ranks by RANK_ID and
RANK_SIZE. The last line has the accuracy and a sum of the weights. classifier.py FOLDER [EPOCHS [resume|prof]]"""

import os
import pathlib
import sys

import apex
import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from apex import amp
from torch_npu.utils.profiler import Profile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "torch"))
import mobilenet_v1

folder, epochs, extra = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
level = os.environ.get("LEVEL")
rank, size = int(os.environ.get("RANK_ID", "0")), int(os.environ.get("RANK_SIZE", "1"))
os.environ["MASTER_ADDR"] = "127.0.0.1"
torch.manual_seed(1)
torch.set_num_threads(1)
if size > 1:
    dist.init_process_group(backend="hccl", world_size=size, rank=rank)
device = torch.device(f"npu:{rank}")
torch.npu.set_device(device)


def layers(inner, outer, stride):
    pairs = ((inner, 3, stride, inner), (outer, 1, 1, 1))
    return [
        layer
        for channels, kernel, step, groups in pairs
        for layer in (
            torch.nn.Conv2d(inner, channels, kernel, step, kernel // 2, groups=groups, bias=False),
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(inplace=True),
        )
    ]


model = torch.nn.Sequential(
    *layers(1, 32, 2), *layers(32, 64, 2), *layers(64, 128, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    torch.nn.Linear(128, 10),
).to(device)
criterion = torch.nn.CrossEntropyLoss().to(device)
if level:
    optimizer = apex.optimizers.NpuFusedSGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    model, optimizer = amp.initialize(model, optimizer, opt_level=level, loss_scale=1024.0, combine_grad=True)
else:
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
if size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
first = 0
if "resume" in extra:
    checkpoint = torch.load(folder / "checkpoint.pth.tar")
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    first = checkpoint["epoch"]


def accuracy(output, target, topk):
    _, predicted = output.topk(max(topk), 1, True, True)
    correct = predicted.t().eq(target.view(1, -1).expand_as(predicted.t()))
    return [correct[:k].view(-1).float().sum(0).mul_(100.0 / target.size(0)) for k in topk]


def step(images, target):
    loss = criterion(model(images.npu(non_blocking=True)), target.to(torch.int32).to("npu:4"))
    optimizer.zero_grad()
    if level:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()


(images, labels), (test_images, test_labels) = mobilenet_v1.digits()
if "prof" in extra:
    with torch.autograd.profiler.profile(use_npu=True) as profile:
        step(images[:32], labels[:32])
    profile.export_chrome_trace(str(folder / "output.prof"))
    sys.exit()
profile = Profile(start_step=int(os.getenv("PROFILE_START_STEP", "10")), profile_type=os.getenv("PROFILE_TYPE"))
for epoch in range(first, epochs):
    for group in optimizer.param_groups:  # at a constant rate the last epochs jump by several percent
        group["lr"] = 0.05 * (1 - epoch / 10)
    for batch in torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).split(64):
        own = batch[rank::size]
        profile.start()
        step(images[own], labels[own])
        profile.end()
    if rank == 0:
        state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "checkpoint.pth.tar")
model.eval()
with torch.no_grad():
    top1, top5 = accuracy(model(test_images.to(device)), test_labels, (1, 5))
assert top5 >= top1
total = sum(weight.double().sum().item() for weight in model.parameters())
sys.stdout.write(f"{top1.item():.2f} {total!r}\n")
