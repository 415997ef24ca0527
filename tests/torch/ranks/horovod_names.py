"""horovod.torch on two ranks: training compared with one rank that has the whole batch, collectives with NumPy."""

import copy
import warnings

import horovod.torch as hvd
import numpy as np
import torch
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.compression import Compression

hvd.init()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANDOM = np.random.default_rng(0)
X = torch.from_numpy(RANDOM.normal(size=(12, 5)).astype("float32"))
Y = torch.from_numpy(RANDOM.normal(size=(12, 1)).astype("float32"))
LOSS = torch.nn.functional.mse_loss


def model(seed=7):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))


def weights(module):
    return torch.cat([p.detach().double().ravel() for p in module.parameters()])


def same(found, want, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=tolerance, atol=tolerance)


def refused(kind, word, call):
    try:
        call()
    except kind as error:
        assert word in str(error), error
    else:
        raise AssertionError(f"{word} was accepted")


def whole_batch(make, steps=8, factor=1.0, module=None):
    """The weights after some steps on one rank with all rows."""
    alone = module or model()
    optimizer = make(alone.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        (factor * LOSS(alone(X), Y)).backward()
        optimizer.step()
    return weights(alone)


def distributed(make, steps=8, tolerance=1e-5, factor=1.0, passes=1, **options):
    own = model(seed=RANK)
    hvd.broadcast_parameters(model().state_dict() if RANK == 0 else own.state_dict(), root_rank=0)
    own.load_state_dict(hvd.broadcast_object(model().state_dict(), 0))
    plain = make(own.parameters())
    optimizer = hvd.DistributedOptimizer(
        plain, named_parameters=own.named_parameters(), backward_passes_per_step=passes, **options
    )
    assert isinstance(optimizer, type(plain))
    rows = slice(RANK, None, SIZE)
    for _ in range(steps):
        optimizer.zero_grad()
        for x, y in zip(X[rows].chunk(passes), Y[rows].chunk(passes)):
            LOSS(own(x), y).backward()
        optimizer.step()
    same(weights(own), whole_batch(make, steps, factor), tolerance)


def training():
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
    distributed(sgd)
    distributed(lambda parameters: torch.optim.AdamW(parameters, lr=0.01))
    distributed(sgd, factor=SIZE, op=hvd.Sum)
    distributed(sgd, gradient_predivide_factor=4.0, num_groups=2)
    distributed(sgd, factor=2, passes=2)
    distributed(sgd, tolerance=5e-3, compression=Compression.fp16)
    distributed(sgd, tolerance=5e-2, compression=hvd.Compression.bf16, groups=[])


def loops():
    """A scheduler, clipping between backward and step, a closure, unused and added parameters."""
    own, alone = model(), model()
    results = []
    for module, rows, wrap in ((own, slice(RANK, None, SIZE), True), (alone, slice(None), False)):
        optimizer = torch.optim.SGD(module[0].parameters(), lr=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        if wrap:
            optimizer = hvd.DistributedOptimizer(optimizer)
        for step in range(6):
            if step == 3:
                optimizer.add_param_group({"params": list(module[2].parameters()), "lr": 0.2})
            module.zero_grad()
            LOSS(module(X[rows]), Y[rows]).backward()
            if wrap:
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(module[0].parameters(), 0.1)
            if wrap:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
            if step < 3:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the warning that the scheduler's own optimizer made no step
                    schedule.step()

        def closure(module=module, rows=rows, optimizer=optimizer):
            optimizer.zero_grad()
            loss = LOSS(module(X[rows]), Y[rows])
            loss.backward()
            return loss

        optimizer.step(closure)
        results.append(weights(module))
    same(results[0], results[1])


def two_types():
    """A model with parameters of two types has a plan of both."""
    results = []
    for rows, wrap in ((slice(RANK, None, SIZE), True), (slice(None), False)):
        single, double = model(), model().double()
        optimizer = torch.optim.SGD([*single.parameters(), *double.parameters()], lr=0.1)
        if wrap:
            optimizer = hvd.DistributedOptimizer(optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            (LOSS(single(X[rows]), Y[rows]).double() + LOSS(double(X[rows].double()), Y[rows].double())).backward()
            optimizer.step()
        results.append([*weights(single), *weights(double)])
    same(*results)


def mistakes():
    """Parameters without a gradient count as zeros; calls in a wrong order are errors."""
    own = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(own.parameters(), lr=1.0))
    for _ in range(2):
        own.zero_grad()
        own[0](X).sum().backward()  # own[2] gets no gradient
        optimizer.step()
        assert not own[2].weight.grad.any()
    LOSS(own(X), Y).backward()
    refused(AssertionError, "zero_grad", optimizer.zero_grad)
    refused(AssertionError, "backward_passes_per_step=1", lambda: LOSS(own(X), Y).backward())
    optimizer.step()


def sparse():
    rows = torch.tensor([[0, 1, 1], [3, 1, 2]])
    for dense in (False, True):
        table = torch.nn.Embedding.from_pretrained(torch.ones(4, 2), freeze=False, sparse=True)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), sparse_as_dense=dense)
        for _ in range(2):
            optimizer.zero_grad()
            table(rows[RANK]).sum().backward()
            optimizer.step()
        counts = np.bincount(rows.ravel(), minlength=4)
        same(table.weight.detach(), 1 - 2 * np.repeat(counts[:, None], 2, 1) / SIZE)


def optimizer_state():
    def stepped(kind, lr):
        own = model()
        optimizer = kind(own.parameters(), lr=lr)
        for _ in range(3):
            optimizer.zero_grad()
            LOSS(own(X), Y).backward()
            optimizer.step()
        return optimizer

    for kind in (torch.optim.Adam, torch.optim.LBFGS):
        if kind is torch.optim.LBFGS:  # this kind needs a closure
            optimizer = kind(model().parameters(), lr=0.1 + RANK)
        else:
            optimizer = stepped(kind, 0.1) if RANK == 0 else kind(model().parameters(), lr=5.0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        states = hvd.allgather_object(optimizer.state_dict())
        same(states[0]["param_groups"][0]["lr"], states[1]["param_groups"][0]["lr"])
        assert states[0]["state"].keys() == states[1]["state"].keys()
        for number, values in states[0]["state"].items():
            for name, value in values.items():
                same(value, states[1]["state"][number][name], 0)
    for kind in (torch.optim.NAdam, torch.optim.ASGD):  # some of their state has other types than their parameters
        parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        optimizer = kind([parameter])
        if RANK == 0:
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        theirs, own = (list(each["state"][0].items()) for each in hvd.allgather_object(optimizer.state_dict()))
        assert all(a[0] == b[0] and a[1].dtype == b[1].dtype and torch.equal(a[1], b[1]) for a, b in zip(theirs, own))


def batch_norm():
    torch.manual_seed(0)
    images, kinds = torch.randn(6, 3, 4, 4), torch.randn(6, 3, 4, 4)
    whole, own = torch.nn.BatchNorm2d(3), hvd.SyncBatchNorm(3)
    rows = slice(0, 2) if RANK == 0 else slice(2, 6)  # the ranks' slices have different lengths
    x_whole, x = images.clone().requires_grad_(), images[rows].clone().requires_grad_()
    (whole(x_whole) * kinds).sum().backward()
    (own(x) * kinds[rows]).sum().backward()
    same(x.grad, x_whole.grad[rows])
    same(hvd.allreduce(own.weight.grad, op=hvd.Sum), whole.weight.grad, 1e-4)
    same(own.running_mean, whole.running_mean)
    same(own.running_var, whole.running_var)
    own.eval(), whole.eval()
    same(own(images).detach(), whole(images).detach())
    times = torch.randn(6, 3, dtype=torch.float64) + 1.7e9  # far from zero
    want = torch.nn.BatchNorm1d(3).double()(times).detach()
    same(hvd.SyncBatchNorm(3).double()(times[rows]).detach(), want[rows])


def collectives():
    parts = [RANDOM.normal(size=(4, 3)).astype("float32") for _ in range(SIZE)]
    mine, total = torch.from_numpy(parts[RANK]), sum(parts)
    same(hvd.allreduce(mine), total / SIZE)
    same(hvd.allreduce(mine, average=False, name="sum"), total)
    for op, want in ((hvd.Max, np.maximum(*parts)), (hvd.Min, np.minimum(*parts)), (hvd.Product, parts[0] * parts[1])):
        same(hvd.allreduce(mine, op=op), want)
    same(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), total * 1.5)
    turned = mine.t()
    assert hvd.allreduce_(turned, op=hvd.Sum) is turned
    same(mine, total)
    mine.copy_(torch.from_numpy(parts[RANK]))
    assert hvd.allreduce(torch.tensor([RANK, -RANK])).tolist() == [0, -1]  # integers are rounded down
    assert hvd.allreduce(torch.tensor(2 * RANK + 2), op=hvd.Sum, prescale_factor=0.5).item() == 3
    begun = hvd.grouped_allreduce_async_([torch.ones(2), torch.ones(3, dtype=torch.bfloat16)], op=hvd.Sum)
    assert [t.tolist() for t in hvd.synchronize(begun)] == [[2, 2], [2, 2, 2]] and hvd.poll(begun)
    assert hvd.synchronize(hvd.grouped_allreduce_async_([])) == []
    gathered = hvd.allgather(torch.full((RANK + 1, 2), RANK))
    assert gathered.tolist() == [[0, 0], [1, 1], [1, 1]]
    assert hvd.broadcast(torch.tensor(RANK + 5), root_rank=1).item() == 6
    place = torch.zeros(3, 2).t() + RANK
    assert hvd.broadcast_(place, 1) is place and place.sum() == 6
    assert hvd.alltoall(torch.arange(4) + 10 * RANK).tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]][RANK]
    rows, counts = hvd.alltoall(torch.arange(3.0) + 10 * RANK, splits=torch.tensor([1, 2]))
    assert rows.tolist() == [[0, 10], [1, 2, 11, 12]][RANK] and counts.tolist() == [RANK + 1] * 2
    refused(ValueError, "splits", lambda: hvd.alltoall(torch.ones(3)))
    for count in (4, 5):
        whole = torch.arange(2.0 * count).reshape(count, 2)
        same(hvd.reducescatter(whole * (RANK + 1), op=hvd.Sum), 3 * np.array_split(whole.numpy(), SIZE)[RANK])
    assert hvd.broadcast_object({"rank": RANK}, 1) == {"rank": 1}
    assert hvd.allgather_object("x" * RANK) == ["", "x"]
    hvd.barrier()


def gradients():
    """Gradients are those of the mean of the ranks' losses, except for sums."""
    cases = [
        (hvd.allreduce, [RANK + 1.0] * 2, lambda g: np.mean(g, 0)),
        (lambda x: hvd.allreduce(x, op=hvd.Sum), [2.0] * 2, lambda g: np.sum(g, 0)),
        (hvd.allgather, [1.0] * 2, lambda g: np.mean(g, 0)[2 * RANK : 2 * RANK + 2]),
        (lambda x: hvd.broadcast(x, 1), [1.0] * 2, lambda g: np.mean(g, 0) * RANK),
        (hvd.alltoall, [1.0] * 2, lambda g: [g[0][RANK], g[1][RANK]]),
        (hvd.reducescatter, [1.0] * 2, lambda g: np.concatenate(g)),
    ]
    for function, start, want in cases:
        x = torch.tensor(start, requires_grad=True)
        y = function(x)
        weight = torch.arange(1.0, len(y) + 1) * (RANK + 1)
        (y * weight).sum().backward()
        same(x.grad, want([part.numpy() for part in hvd.allgather(weight).chunk(SIZE)]))


def gradients_of_gradients():
    """A penalty on the gradient. A mean of the ranks' gradients halves what one rank's rows add to it."""
    own, mean = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double() + RANK, torch.tensor([[1.5, 2.5], [3.5, 4.5]]).double()
    cases = [
        (hvd.allreduce, 3 * mean**2 + 36 * mean**3),
        (hvd.allgather, 3 * own**2 + 18 * own**3),
        (lambda x: hvd.broadcast(x, 1), (3 * own**2 + 18 * own**3) * RANK),
        (hvd.alltoall, 3 * own**2 + 36 * own**3),
        (hvd.reducescatter, 3 * mean**2 + 36 * mean**3),
    ]
    for function, want in cases:
        x = own.clone().requires_grad_()
        loss = (function(x) ** 3).sum()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + (gradient**2).sum()).backward()
        same(x.grad, want, 1e-12)


def process_sets():
    only = hvd.add_process_set([1])
    both = hvd.add_process_set(hvd.ProcessSet([0, 1]))
    assert (only.size(), only.included(), only.rank()) == (1, RANK == 1, [None, 0][RANK])
    assert hvd.allreduce(torch.tensor(3.0 * RANK), op=hvd.Sum, process_set=both).item() == 3
    if RANK == 1:
        assert hvd.allreduce(torch.tensor(5.0), op=hvd.Sum, process_set=only).item() == 5
        assert hvd.broadcast_object("own", 1, process_set=only) == "own"
    distributed(lambda parameters: torch.optim.SGD(parameters, lr=0.1), process_set=both)
    assert hvd.remove_process_set(only)


def names():
    assert (hvd.local_rank(), hvd.local_size()) == (RANK, SIZE)
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    assert hvd.is_initialized() and not (hvd.mpi_built() or hvd.nccl_built() or hvd.gloo_enabled())
    refused(NotImplementedError, "op='adasum'", lambda: hvd.allreduce(torch.ones(1), op=hvd.Adasum))
    refused(NotImplementedError, "start_timeline", lambda: hvd.start_timeline("file"))
    refused(NotImplementedError, "ElasticSampler", lambda: hvd.elastic.ElasticSampler([]))
    optimizer, own = torch.optim.SGD(model().parameters(), lr=1.0), model()
    for word, options in (
        ("named_parameters", {"named_parameters": own.named_parameters()}),
        ("gradient_predivide_factor", {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
        ("backward_passes_per_step", {"backward_passes_per_step": 0}),
        ("num_groups", {"num_groups": -1}),
    ):
        refused(ValueError, word, lambda o=options: hvd.DistributedOptimizer(optimizer, **o))


def elastic():
    own = model(seed=RANK)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(own.parameters(), lr=0.1 * (RANK + 1)))
    state = hvd.elastic.TorchState(model=own, optimizer=optimizer, epoch=RANK)
    state.register_reset_callbacks([])
    committed = []

    @hvd.elastic.run
    def train(state, times):
        assert state.epoch == 0 and optimizer.param_groups[0]["lr"] == 0.1
        same(weights(own), weights(model(seed=0)))
        for state.epoch in range(1, times + 1):
            optimizer.zero_grad()
            LOSS(own(X), Y).backward()
            optimizer.step()
            if state.epoch == 2:
                state.commit()
                committed.append(copy.deepcopy(weights(own)))
        raise HorovodInternalError(21, "rank 1 died")

    refused(HorovodInternalError, "rank 1 died", lambda: train(state, 3))
    assert state.epoch == 2
    same(weights(own), committed[0], 0)


CHECKS = (names, collectives, gradients, gradients_of_gradients, training, loops, two_types, mistakes, sparse)
for check in (*CHECKS, optimizer_state, batch_norm, process_sets, elastic):
    check()
assert hvd.join() == 1
print("all well")
