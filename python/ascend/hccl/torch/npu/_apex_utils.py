"""Small parts of apex: multi_tensor_apply, fp16_utils, LARC."""

from typing import Any, Callable

import torch

from hccl.torch.npu._operators import missing


class MultiTensorApply:
    """Calls an operation on lists of tensors. `available` is False, because apex's own operations
    (amp_C) do not exist here."""

    available = False
    warned = True

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def __call__(self, op: Callable, noop_flag_buffer: Any, tensor_lists: Any, *args: Any) -> Any:
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)


multi_tensor_applier = MultiTensorApply(2048 * 32)


class LARC:
    """Layer-wise adaptive rates (You et al., 2017) around an optimizer. A parameter's rate is
    trust_coefficient * |weight| / (|gradient| + decay * |weight|). The gradient, with the weight
    decay added, is multiplied by this rate or, with `clip`, by min(rate / lr, 1): then the
    parameter's learning rate is the smaller of this rate and the optimizer's lr."""

    def __init__(
        self, optimizer: Any, trust_coefficient: float = 0.02, clip: bool = True, eps: float = 1e-8
    ) -> None:
        self.optim = optimizer
        self.trust_coefficient, self.clip, self.eps = trust_coefficient, clip, eps

    def __getattr__(self, name: str) -> Any:
        if "optim" not in self.__dict__:  # while the object is copied
            raise AttributeError(name)
        return getattr(self.optim, name)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        decays = [group.setdefault("weight_decay", 0.0) for group in self.param_groups]
        try:
            for group, decay in zip(self.param_groups, decays):
                group["weight_decay"] = 0.0
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._scale(parameter, group["lr"], decay)
            return self.optim.step(*args, **kwargs)
        finally:
            for group, decay in zip(self.param_groups, decays):
                group["weight_decay"] = decay

    @torch.no_grad()
    def _scale(self, parameter: Any, lr: float, decay: float) -> None:
        norm, grad_norm = float(parameter.norm()), float(parameter.grad.norm())
        if norm and grad_norm:
            rate = self.trust_coefficient * norm / (grad_norm + norm * decay + self.eps)
            if self.clip:
                rate = 1.0 if rate >= lr else rate / lr
            parameter.grad.add_(parameter, alpha=decay).mul_(rate)


# ---- fp16_utils ----


class tofp16(torch.nn.Module):  # noqa: N801: apex's name
    def forward(self, input: Any) -> Any:
        return input.half()


def BN_convert_float(module: Any) -> Any:  # noqa: N802: apex's name
    for each in module.modules():
        if isinstance(each, torch.nn.modules.batchnorm._BatchNorm) and each.affine:
            each.float()
    return module


def network_to_half(network: Any) -> Any:
    return torch.nn.Sequential(tofp16(), BN_convert_float(network.half()))


def to_python_float(t: Any) -> float:
    return t.item() if hasattr(t, "item") else t[0]


FP16_UTILS = {
    "tofp16": tofp16,
    "BN_convert_float": BN_convert_float,
    "network_to_half": network_to_half,
    "to_python_float": to_python_float,
    "clip_grad_norm": torch.nn.utils.clip_grad_norm_,
    "FP16_Optimizer": missing("FP16_Optimizer"),
}
