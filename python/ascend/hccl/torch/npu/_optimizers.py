"""NpuFused*: fused optimizers with Ascend's arguments."""

from typing import Any

import torch

from hccl.torch import optim
from hccl.torch.npu import _combine
from hccl.torch.npu._functions import HALF


_TYPES = (torch.float32, HALF)


def _kept(optimizer: Any, key: Any, tensors: list) -> Any:
    """Returns one tensor in which the tensors lie one after another. Combines them only if they are
    not combined yet."""
    known = optimizer.__dict__.setdefault("_combined_tensors", {})
    combined, at = known.get(key), 0
    valid = combined is None or combined.numel() == sum(tensor.numel() for tensor in tensors)
    for tensor in tensors:
        valid = valid and combined is not None and tensor.is_contiguous()
        valid = valid and (tensor.data_ptr() == combined[at:].data_ptr() or not tensor.numel())
        at += tensor.numel()
    if not valid:
        known[key] = _combine.npu_combine_tensors(tensors)
    return known.get(key)


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    """The base of a program's own optimizer. step() combines the parameters that have a gradient,
    and their gradients, by type (float32, half). If is_states_combined is False, for example after
    a change of the parameters, step() calls the program's _maybe_init_combined_states(). Then it
    calls the program's _group_step(i) for each group."""

    is_fused_optimizer = True
    is_params_grads_combined = is_states_combined = False
    params_all_group_combined: Any = ()
    grads_all_group_combined: Any = ()

    def _maybe_init_combined_params_and_grads(self) -> None:
        """Sets params_all_group_combined and grads_all_group_combined [type],
        combined_params_indexed_by_group and combined_grads_indexed_by_group [group][type], and
        params_lists_indexed_by_group [group][type]."""
        before = self.params_all_group_combined
        lists = []
        for group in self.param_groups:
            some = [p for p in group["params"] if p.grad is not None]
            if other := [p.dtype for p in some if p.dtype not in _TYPES]:
                raise TypeError(f"combined parameters are float32 or {HALF}, not {other[0]}")
            lists.append([[p for p in some if p.dtype == dtype] for dtype in _TYPES])
        for name in ("params", "grads"):
            wholes, parts = [], []
            for i, dtype in enumerate(_TYPES):
                tensors = [
                    [p.grad if name == "grads" else p for p in types[i]] for types in lists
                ]
                wholes.append(_kept(self, (name, dtype), sum(tensors, [])))
                if wholes[-1] is None:
                    parts.append([None] * len(lists))
                else:
                    split = wholes[-1].split([sum(t.numel() for t in some) for some in tensors])
                    parts.append([part if part.numel() else None for part in split])
            setattr(self, f"{name}_all_group_combined", wholes)
            setattr(self, f"combined_{name}_indexed_by_group", [list(each) for each in zip(*parts)])
        self.params_lists_indexed_by_group = lists
        now = self.params_all_group_combined
        self.is_params_grads_combined = any(each is not None for each in now)
        if [id(each) for each in before] != [id(each) for each in now]:
            self.is_states_combined = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._maybe_init_combined_params_and_grads()
        if not self.is_states_combined:
            self._maybe_init_combined_states()
        for i in range(len(self.param_groups)):
            self._group_step(i)
        return loss

    def _maybe_init_combined_states(self) -> None:
        raise NotImplementedError

    def _group_step(self, group_index: int) -> None:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        self.is_states_combined = False

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zeroes gradients in place, like Ascend's method."""
        if set_to_none:
            raise ValueError("set_to_none is not supported in fused optimizers")
        super().zero_grad(set_to_none=False)

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        parameters = [p for group in self.param_groups for p in group["params"]]
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)

    def get_combined_params(self) -> list:
        """Returns [float32, half]: for each type, one tensor with the parameters that have a
        gradient, or None if no parameter of the type has one."""
        self._maybe_init_combined_params_and_grads()
        return self.params_all_group_combined

    def get_combined_grads(self) -> list:
        self._maybe_init_combined_params_and_grads()
        return self.grads_all_group_combined


# ---- members that amp.initialize adds to each optimizer ----


def _of_amp(of_model: bool, gradients: bool) -> Any:
    def combined(self: Any) -> list:
        """Returns a list of tensors that combine parameters or gradients: [all] or, with master
        weights, [masters, others]; for the model, [halves, others]. None replaces a tensor without
        elements."""
        pairs = self._amp_stash.pairs
        masters = {id(master) for _, master in pairs}
        parameters = (p for group in self.param_groups for p in group["params"])
        lists = [[p for p in parameters if id(p) not in masters]]
        if pairs:
            lists.insert(0, [half if of_model else master for half, master in pairs])
        if gradients:
            lists = [[p.grad for p in some if p.grad is not None] for some in lists]
        return [_kept(self, (of_model, gradients, i), some) for i, some in enumerate(lists)]

    return combined


def _masks(self: Any) -> list:
    """Returns ones, because combined tensors have no gaps between gradients."""
    grads = self.get_optimizer_combined_grads()
    return [None if each is None else torch.ones_like(each) for each in grads]


def _clipped(self: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    if hasattr(self, "clip_grad_norm_fused_"):
        return self.clip_grad_norm_fused_(max_norm, norm_type)
    parameters = [p for group in self.param_groups for p in group["params"]]
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)


def _clipped_model(self: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    if self._amp_stash.pairs:
        raise RuntimeError("clip_model_grad_norm_fused can only be used when opt_level='O1'")
    return self.clip_optimizer_grad_norm_fused(max_norm, norm_type)


AMPS = {
    "get_model_combined_params": _of_amp(True, False),
    "get_model_combined_grads": _of_amp(True, True),
    "get_optimizer_combined_params": _of_amp(False, False),
    "get_optimizer_combined_grads": _of_amp(False, True),
    "get_optimizer_combined_grad_masks": _masks,
    "clip_optimizer_grad_norm_fused": _clipped,
    "clip_model_grad_norm_fused": _clipped_model,
    "_lazy_init_maybe_master_weights": lambda self: None,  # initialize has made them
}


def _npu(base: Any) -> Any:
    """Returns Ascend's class: `base` without the arguments that Ascend's class lacks."""

    class NpuFused(base, NpuFusedOptimizerBase):
        def __init__(self, params: Any, lr: Any = None, *args: Any, **kwargs: Any):
            for name in ("maximize", "master_weights"):
                if name in kwargs:
                    raise TypeError(f"{type(self).__name__} got an unexpected argument '{name}'")
            if lr is None and base in _NEED_LR:
                raise ValueError("Invalid learning rate: it is required")
            super().__init__(params, *(() if lr is None else (lr,)), *args, **kwargs)

        def zero_grad(self, set_to_none: bool = False) -> None:
            super().zero_grad(set_to_none)

    NpuFused.__name__ = NpuFused.__qualname__ = base.__name__.replace("Fused", "NpuFused", 1)
    NpuFused.__doc__ = f"{base.__name__} with the arguments of torch_npu's class of that name."
    NpuFused.__module__ = __name__
    return NpuFused


_NEED_LR = (optim.FusedSGD, optim.FusedBertAdam)
_OTHERS = (
    *(optim.FusedAdam, optim.FusedAdamW, optim.FusedAdamP, optim.FusedAdadelta, optim.FusedLamb),
    *(optim.FusedRMSprop, optim.FusedRMSpropTF),
)
OPTIMIZERS = {one.__name__: one for one in map(_npu, (*_NEED_LR, *_OTHERS))}
globals().update(OPTIMIZERS)  # unpickling looks for the classes here


_HOW = ("set_grad_none", "capturable", "master_weights", "materialize_master_grads")


class FusedAdam:
    """apex's fused Adam: AdamW by default."""

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
    """apex's fused SGD."""

    def __new__(cls, params: Any, lr: float, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("wd_after_momentum", False):
            raise RuntimeError("hccl: FusedSGD has no wd_after_momentum")
        kwargs = {name: value for name, value in kwargs.items() if name not in _HOW}
        return optim.FusedSGD(params, lr, *args, **kwargs)


APEXS = {"FusedAdam": FusedAdam, "FusedSGD": FusedSGD}


class GradScaler(optim.GradScaler):
    """torch_npu.npu.amp.GradScaler. After step() the gradients are unscaled, so programs can read
    them or add to them. With dynamic=False gradients are not checked, and the scale never
    changes."""

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
    """Clips all gradients of an optimizer and returns their norm before the clipping."""
    return optimizer.clip_grad_norm_fused_(max_norm, norm_type)
