"""NpuFused*: the fused optimizers with Ascend's arguments."""

from typing import Any

import torch

from hccl.torch import optim
from hccl.torch.npu._functions import HALF


def _kept(optimizer: Any, key: Any, tensors: list) -> Any:
    """The tensors in one, which is made again only if it is no longer valid."""
    from hccl.torch.npu._combine import is_combined_tensor_valid, npu_combine_tensors

    known = optimizer.__dict__.setdefault("_combined_tensors", {})
    combined = known.get(key)
    if (
        combined is None
        or combined.numel() != sum(tensor.numel() for tensor in tensors)
        or not is_combined_tensor_valid(combined, [t for t in tensors if t.numel()])
    ):
        combined = known[key] = npu_combine_tensors(tensors)
    return combined


def _of_model(optimizer: Any, pairs: list) -> list:
    masters = {id(master) for _, master in pairs}
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    others = [p for p in parameters if id(p) not in masters]
    return [_kept(optimizer, "half", [p for p, _ in pairs]), _kept(optimizer, "others", others)]


def _npu(base: Any, required_lr: bool = False) -> Any:
    """Makes Ascend's class: `base` without the arguments that Ascend's class does not have."""

    class NpuFused(base):
        def __init__(self, params: Any, lr: Any = None, *args: Any, **kwargs: Any):
            for name in ("maximize", "master_weights"):
                if name in kwargs:
                    raise TypeError(f"{type(self).__name__} got an unexpected argument '{name}'")
            if lr is None and required_lr:
                raise ValueError("Invalid learning rate: it is required")
            if lr is None:
                super().__init__(params, *args, **kwargs)
            else:
                super().__init__(params, lr, *args, **kwargs)

        def zero_grad(self, set_to_none: bool = False) -> None:
            """Zeroes gradients in place, as Ascend's method does."""
            if set_to_none:
                raise ValueError("set_to_none is not supported in fused optimizers")
            super().zero_grad(set_to_none=False)

        def get_combined_params(self) -> list:
            return self._combined(lambda p: p)

        def get_combined_grads(self) -> list:
            return self._combined(lambda p: p.grad)

        def get_model_combined_params(self) -> list:
            """amp's: [float32], or, with master weights, the model's [half, float32]."""
            pairs = getattr(getattr(self, "_amp_stash", None), "pairs", ())
            return _of_model(self, pairs) if pairs else self.get_combined_params()[:1]

        def _combined(self, of: Any) -> list:
            """Returns [float32, half]: the combined parameters with a gradient, or None without
            any."""
            found = []
            for dtype in (torch.float32, HALF):
                tensors = [
                    of(p)
                    for group in self.param_groups
                    for p in group["params"]
                    if p.grad is not None and p.dtype == dtype
                ]
                found.append(_kept(self, (of.__code__, dtype), tensors))
            return found

    NpuFused.__name__ = NpuFused.__qualname__ = base.__name__.replace("Fused", "NpuFused", 1)
    NpuFused.__doc__ = f"{base.__name__} with the arguments of torch_npu's class of that name."
    NpuFused.__module__ = __name__
    return NpuFused


NpuFusedSGD = _npu(optim.FusedSGD, required_lr=True)
NpuFusedAdam = _npu(optim.FusedAdam)
NpuFusedAdamW = _npu(optim.FusedAdamW)
NpuFusedAdamP = _npu(optim.FusedAdamP)
NpuFusedAdadelta = _npu(optim.FusedAdadelta)
NpuFusedLamb = _npu(optim.FusedLamb)
NpuFusedRMSprop = _npu(optim.FusedRMSprop)
NpuFusedRMSpropTF = _npu(optim.FusedRMSpropTF)
NpuFusedBertAdam = _npu(optim.FusedBertAdam, required_lr=True)
NpuFusedOptimizerBase = optim.FusedOptimizer

OPTIMIZERS = {
    one.__name__: one
    for one in (
        *(NpuFusedSGD, NpuFusedAdam, NpuFusedAdamW, NpuFusedAdamP, NpuFusedAdadelta),
        *(NpuFusedLamb, NpuFusedRMSprop, NpuFusedRMSpropTF, NpuFusedBertAdam),
    )
}


_HOW = ("set_grad_none", "capturable", "master_weights", "materialize_master_grads")


class FusedAdam:
    """apex's: AdamW by default."""

    def __new__(
        cls,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **how: Any,
    ) -> Any:
        if not bias_correction:
            raise RuntimeError("hccl: FusedAdam has no bias_correction=False; use NpuFusedBertAdam")
        if unknown := set(how) - set(_HOW):
            raise TypeError(f"FusedAdam got unexpected arguments: {', '.join(sorted(unknown))}")
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        of = optim.FusedAdamW if adam_w_mode else optim.FusedAdam
        return of(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)


class FusedSGD:
    """apex's."""

    def __new__(cls, params: Any, lr: float, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("wd_after_momentum", False):
            raise RuntimeError("hccl: FusedSGD has no wd_after_momentum")
        kwargs = {name: value for name, value in kwargs.items() if name not in _HOW}
        return optim.FusedSGD(params, lr, *args, **kwargs)


APEXS = {"FusedAdam": FusedAdam, "FusedSGD": FusedSGD}


class GradScaler(optim.GradScaler):
    """torch_npu.npu.amp.GradScaler: behind step() the gradients are unscaled, so that programs may
    read them or add to them. dynamic=False: they are not checked, and the scale never changes."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def _forget(self, optimizer: Any) -> None:
        if not self._dynamic:
            found = torch.tensor(0.0)
            state = self._per_optimizer_states[id(optimizer)]
            state["found_inf_per_device"] = {found.device: found}

    def unscale_(self, optimizer: Any) -> None:
        super().unscale_(optimizer)
        if self._enabled:
            self._forget(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if self._enabled and not kwargs.get("zero_grad"):
            from torch.amp.grad_scaler import OptState

            if self._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY:
                self.unscale_(optimizer)
        done = super().step(optimizer, *args, **kwargs)
        if self._enabled and any(
            found.item()
            for found in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
        ):
            print("Gradient overflow. Skipping step")
        return done

    def update(self, new_scale: Any = None) -> None:
        if self._dynamic or new_scale is not None:
            return super().update(new_scale)
        self._per_optimizer_states.clear()
        return None


def clip_grad_norm_fused_(optimizer: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Clips all gradients of an optimizer and returns their norm before."""
    return optimizer.clip_grad_norm_fused_(max_norm, norm_type)
