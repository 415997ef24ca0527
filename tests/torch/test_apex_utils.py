"""apex's small things against their definitions: LARC, fp16_utils, multi_tensor_apply; combined parameters."""

import numpy
import pytest
import torch

from hccl.torch.npu import _apex, _apex_utils, _optimizers


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_larc_scales_gradients_by_layers():
    weights = [random(3, seed=i).requires_grad_() for i in range(2)]
    wanted = [weight.detach().double().numpy() for weight in weights]
    optimizer = _apex_utils.LARC(torch.optim.SGD(weights, 0.1, weight_decay=0.5), 0.02, clip=True)
    for scale in (1e-3, 10.0):  # the rate is that of the optimizer, and that of LARC
        for i, weight in enumerate(weights):
            weight.grad = random(3, seed=i + 2) * scale
            gradient = weight.grad.double().numpy()
            norms = numpy.linalg.norm(wanted[i]), numpy.linalg.norm(gradient)
            rate = min(0.1, 0.02 * norms[0] / (norms[1] + 0.5 * norms[0]))
            wanted[i] = wanted[i] - rate * (gradient + 0.5 * wanted[i])
        optimizer.step()
        for weight, each in zip(weights, wanted):
            numpy.testing.assert_allclose(weight.detach().numpy(), each, rtol=1e-5)
    weights[0].grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError):  # SGD gets the decay back
        optimizer.step()
    assert optimizer.param_groups[0]["weight_decay"] == 0.5 and optimizer.state_dict()["param_groups"]


def test_fp16_utils():
    utils = _apex_utils.FP16_UTILS
    network = utils["network_to_half"](torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)))
    assert network(torch.rand(1, 1, 5, 5)).dtype == torch.float16
    assert network[1][1].weight.dtype == torch.float32 and network[1][0].weight.dtype == torch.float16
    with pytest.raises(NotImplementedError, match='use apex.amp.initialize with opt_level="O2"'):
        utils["FP16_Optimizer"](None)


def test_operations_over_lists():
    def add(chunk_size, flag, lists, factor):
        for x, y in zip(*lists):
            y += factor * x

    lists = [[torch.ones(2), torch.ones(3)], [torch.zeros(2), torch.zeros(3)]]
    _apex_utils.multi_tensor_applier(add, torch.zeros(1), lists, 2.0)
    assert [y.tolist() for y in lists[1]] == [[2, 2], [2, 2, 2]]
    assert not _apex_utils.multi_tensor_applier.available


@pytest.mark.parametrize("level", ["O0", "O2"])
def test_parameters_of_the_model_in_one_tensor(level):
    """What is written to the combined tensors is in the model; they are the same after a step."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = _optimizers.NpuFusedSGD(model.parameters(), 0.1)
    model, optimizer = _apex.initialize(model, optimizer, opt_level=level, loss_scale=1.0)
    for _ in range(2):
        with _apex.scale_loss(model(random(4, 3)).square().sum(), optimizer) as loss:
            loss.backward()
        combined = optimizer.get_model_combined_params()
        optimizer.step()
        optimizer.zero_grad()
    dtypes = [torch.float16, torch.float32] if level == "O2" else [torch.float32]
    assert [each.dtype for each in combined] == dtypes
    assert sum(each.numel() for each in combined) == 3 * 2 + 2 + 2 * 2
    again = optimizer.get_model_combined_params() if level == "O2" else combined
    assert [x.data_ptr() for x in again] == [x.data_ptr() for x in combined]
    for each in combined:
        each.fill_(0.25)
    assert all((parameter == 0.25).all() for parameter in model.parameters())
