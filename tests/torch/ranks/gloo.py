"""Trains a linear model on made-up data as users of a framework do, with a backend that the framework chooses, and
reports the backend and the weights. Argument: "plain", "accelerate", "trainer", "lightning" or "deepspeed". Variable:
OUT, a folder."""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from hccl.torch import _module

STEPS = 4


def dataset():
    made = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(64, 4, generator=made), torch.randn(64, 1, generator=made)
    return torch.utils.data.TensorDataset(inputs, targets)


def loader(**options):
    return torch.utils.data.DataLoader(dataset(), batch_size=8, **options)


def say(model):
    """Reports after training, while the group exists. "ours": whether the backend is hccl's."""
    weights = [value for each in model.parameters() for value in each.detach().flatten().tolist()]
    ours = _module.backend_of(dist.group.WORLD) is not None
    said = {"backend": dist.get_backend(), "size": dist.get_world_size(), "ours": ours, "weights": weights}
    (pathlib.Path(os.environ["OUT"]) / str(dist.get_rank())).write_text(json.dumps(said))


def train(model, optimizer, batches, backward):
    for inputs, targets in batches:
        optimizer.zero_grad()
        backward((model(inputs) - targets).square().mean())
        optimizer.step()


def plain(model):
    """Makes groups by the backend's name, by a device's name, by a mesh, and without a name."""
    dist.init_process_group("gloo")
    groups = [dist.new_group(backend="gloo"), dist.new_group(backend="cpu:gloo"), dist.new_group()]
    groups += [dist.init_device_mesh("cpu", (2,)).get_group()]
    kinds = {_module.backend_of(each) is not None for each in [dist.group.WORLD, *groups]}
    assert len(kinds) == 1, kinds
    for group in groups:
        ones = torch.ones(3)
        dist.all_reduce(ones, group=group)
        assert ones.tolist() == [2, 2, 2], ones
    dist.monitored_barrier()
    model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = torch.utils.data.DistributedSampler(dataset(), shuffle=False)
    train(model, torch.optim.SGD(model.parameters(), 0.1), loader(sampler=sampler), torch.Tensor.backward)
    say(model)
    dist.destroy_process_group()
    if kinds == {True}:  # Gloo could find its first world's addresses in torchrun's store, and hang
        dist.init_process_group()  # torch chooses
        assert _module.backend_of(dist.group.WORLD) is not None
        dist.destroy_process_group()


def accelerate(model):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    made = (model, torch.optim.SGD(model.parameters(), 0.1), loader())
    model, optimizer, batches = accelerator.prepare(*made)
    train(model, optimizer, batches, accelerator.backward)
    say(model)
    accelerator.end_training()


class WithLoss(torch.nn.Module):
    """A model that returns a loss, as transformers.Trainer requires."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels=None):
        return {"loss": (self.model(x) - labels).square().mean()}


def trainer(model):
    import transformers

    options = {"use_cpu": True, "max_steps": STEPS, "report_to": [], "save_strategy": "no", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(os.environ["OUT"] + "/trainer", ddp_backend="gloo", **options)
    rows = [{"x": x, "labels": y} for x, y in dataset()]
    transformers.Trainer(WithLoss(model), arguments, train_dataset=rows).train()
    say(model)


def lightning(model):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            loss = (self.model(batch[0]) - batch[1]).square().mean()
            self.log("loss", loss, sync_dist=True)
            self.log("rows", len(batch[0]), sync_dist=True)  # the mean of integers
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

        def on_train_end(self):
            say(self.model)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(accelerator="cpu", devices=2, max_epochs=1, **quiet).fit(Module(), loader())


def deepspeed(model):
    os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0")
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": 2},
    }
    engine = deepspeed.initialize(model=model, config=config)[0]
    sampler = torch.utils.data.DistributedSampler(dataset(), shuffle=False)
    train(engine, engine, loader(sampler=sampler), engine.backward)
    say(engine.module)
    dist.destroy_process_group()


torch.manual_seed(0)
{each.__name__: each for each in (plain, accelerate, trainer, lightning, deepspeed)}[sys.argv[1]](torch.nn.Linear(4, 1))
