"""The common part of all fused optimizers. Each class adds a rule, arguments and states."""

import math
from typing import Any, Callable, Iterable, Optional

import torch
from torch.amp.grad_scaler import OptState

from hccl.torch import _module
from hccl.torch._memory import has_memory

native = _module.load("hccl.torch.optim")
_CLIP_EPS = 1e-6  # as in torch.nn.utils.clip_grad_norm_
_HALVES = (torch.float16, torch.bfloat16)
# Arguments that must not be negative, with their names in torch's errors.
_NOT_NEGATIVE = {
    "lr": "learning rate",
    "momentum": "momentum value",
    "weight_decay": "weight_decay value",
    "eps": "epsilon value",
    "alpha": "alpha value",
    "delta": "delta value",
    "wd_ratio": "wd_ratio value",
}
# Arguments that are passed to a rule unchanged, with the rule's names for them.
_NUMBERS = {
    "weight_decay": "weight_decay",
    "eps": "eps",
    "alpha": "beta2",
    "rho": "beta2",
    "momentum": "momentum",
    "dampening": "dampening",
    "delta": "delta",
    "wd_ratio": "wd_ratio",
}


class FusedOptimizer(torch.optim.Optimizer):
    """A torch.optim.Optimizer whose step is one call of the library over a table of addresses.

    No gradient is combined or copied: each step uses the current `.grad` of each parameter.
    Parameters are on the CPU. They are float32, float64, bfloat16 or float16, and types may be
    mixed.

    master_weights: 16-bit parameters get a float32 copy (state "master_param") and float32 states.
    The step works on the copy, and the parameter is the rounded copy.
    """

    _rule: Any  # of native.Rule
    _step_supports_amp_scaling = True  # torch.amp.GradScaler leaves unscaling to the step
    is_fused_optimizer = True  # the name that Ascend's scripts look for

    def __init__(self, params: Iterable, defaults: dict, master_weights: bool = False):
        for name, words in _NOT_NEGATIVE.items():
            if name in defaults and name not in self._unchecked:
                check(words, defaults[name])
        check_betas(defaults.get("betas", ()))
        self._native = native.Optimizer(self._rule, self)
        self._pending: Optional[tuple] = None  # (factor, norm) of a deferred unscale_
        self.master_weights = master_weights
        self.grad_norm: Optional[torch.Tensor] = None
        self._stepped: set = set()  # parameters that step_segment has stepped since the last step
        super().__init__(params, defaults)

    # ---- Members that a class overrides. ----

    _unchecked: tuple = ()  # arguments that may be negative here
    _missing: dict = {}  # values of arguments that groups of older releases of torch lack

    def _numbers(self, group: dict, step: float) -> Any:
        """Returns native.Numbers for a group's parameters in step number `step`, which counts from
        1. Reads only this class's arguments, because a group may contain other keys."""
        numbers = {
            number: group[name] for name, number in _NUMBERS.items() if name in self.defaults
        }
        if "betas" in self.defaults:
            beta1, beta2 = group["betas"]
            numbers.update(beta1=float(beta1), beta2=float(beta2))
        if "maximize" in self.defaults and group.get("maximize"):
            numbers["factor"] = -1.0
        return native.Numbers(lr=float(group["lr"]), flags=self._flags(group), **numbers)

    def _flags(self, group: dict) -> int:
        return 0

    def _state_names(self, group: dict) -> tuple:
        """Returns the names of the states in the rule's order; None for a state the group lacks."""
        return self._states

    _states: tuple = ()  # the names, if all groups have the same
    _counts_steps = True

    def _initial_of(self, name: str) -> float:
        return 0.0

    # ---- Called by C++, only when something has changed. ----

    def _state_key(self, group: dict) -> tuple:
        return self._state_names(group)

    def _state_of(self, parameter: torch.Tensor, group: dict) -> tuple:
        """Returns (dictionary, step, states, master, whether a state is new). Makes missing
        states."""
        state = self.state[parameter]
        for name, value in state.items():
            if torch.is_tensor(value) and not has_memory(value):
                raise RuntimeError(f"its state {name}, a {type(value).__name__}, has no memory")
        step = self._step_tensor(state) if self._counts_steps else None
        master = self._master(parameter, state)
        like = parameter if master is None else master
        states, new = [], False
        for name in self._state_names(group):
            tensor = state.get(name) if name else None
            if name and tensor is None:
                new = True
                tensor = torch.full_like(like, self._initial_of(name), requires_grad=False)
            if name:
                states.append(self._fitting(name, tensor, like))
                state[name] = states[-1]
            else:
                states.append(None)
        return state, step, states, master, new

    @staticmethod
    def _step_tensor(state: dict) -> torch.Tensor:
        step = state.get("step", 0)
        if not torch.is_tensor(step):  # a checkpoint of Ascend's class has an int
            step = torch.tensor(float(step), dtype=_step_type())
        elif step.dtype not in (torch.float32, torch.float64) or step.numel() != 1:
            step = step.to(_step_type())
        state["step"] = step
        return step

    def _master(self, parameter: torch.Tensor, state: dict) -> Optional[torch.Tensor]:
        if not self.master_weights or parameter.dtype not in _HALVES:
            return None
        master = state.get("master_param")
        if master is None:
            master = parameter.detach().float()
        state["master_param"] = self._fitting("master_param", master, parameter, torch.float32)
        return state["master_param"]

    @staticmethod
    def _fitting(
        name: str, tensor: torch.Tensor, like: torch.Tensor, dtype: Optional[torch.dtype] = None
    ) -> torch.Tensor:
        if tensor.shape != like.shape:
            raise RuntimeError(
                f"its state {name} has the shape {tuple(tensor.shape)}, "
                f"the parameter {tuple(like.shape)}"
            )
        dtype = dtype or like.dtype
        same_place = tensor.stride() == like.stride() and tensor.device == like.device
        if tensor.dtype == dtype and same_place:
            return tensor
        return torch.empty_like(like, dtype=dtype, requires_grad=False).copy_(tensor)

    # ---- The step. ----

    @torch.no_grad()
    def step(
        self,
        closure: Optional[Callable] = None,
        *,
        max_norm: Optional[float] = None,
        norm_type: float = 2.0,
        scaler: Optional[torch.amp.GradScaler] = None,
        zero_grad: bool = False,
        process_group: Any = None,
    ) -> Any:
        """Makes one step and returns the result of `closure`.

        max_norm: if the norm of the gradients is greater, scales them down to this norm, like
            torch.nn.utils.clip_grad_norm_. Sets `self.grad_norm` to the norm before the clipping.
        scaler: unscales the gradients, and skips the step if a gradient is not finite. Call
            scaler.update() after the step; scaler.unscale_() and scaler.step() are not needed.
        zero_grad: sets gradients to 0 in the same pass.
        process_group: a group of torch.distributed whose ranks each have a part of the gradients.
            The norm and the check for finite gradients are then those of all ranks.

        With max_norm or scaler, the gradients are read once more before the step. `.grad` is not
        written, so without zero_grad it remains scaled.
        """
        loss = None
        if closure is not None:
            if scaler is not None:
                raise RuntimeError("hccl: a closure cannot be used together with a scaler")
            with torch.enable_grad():
                loss = closure()
        if self._stepped:
            self._step_rest(max_norm is not None or scaler is not None)
            if zero_grad:
                self.zero_grad(set_to_none=False)
            return loss
        factor = self._factor(max_norm, norm_type, scaler, process_group)
        if factor is not None:
            self._native.step(self.param_groups, self.state, factor, zero_grad, None)
        elif zero_grad:
            self.zero_grad(set_to_none=False)
        return loss

    @torch.no_grad()
    def step_segment(self, parameters: Iterable[torch.Tensor]) -> None:
        """Steps those of `parameters` that belong to this optimizer. Pass it to
        register_segment_hook of hccl.torch.DistributedDataParallel or CombinedGradients. Then the
        first segments of gradients are stepped while later segments are reduced.

        Call step() afterwards as usual: it steps the remaining parameters and begins the next
        iteration. Numbers such as lr are read at the end of backward. Clipping and scalers are not
        possible, because they need all gradients first. RuntimeError: backward ran twice before
        step() (accumulate in no_sync).
        """
        if self._needs_all_gradients() or self._pending is not None:
            raise RuntimeError(
                "hccl: a segment cannot be stepped before the norm of all gradients is known"
            )
        segment = set(parameters)
        if not self._stepped.isdisjoint(segment):
            raise RuntimeError(
                "hccl: backward ran twice before step(): accumulate gradients in no_sync()"
            )
        self._native.step(self.param_groups, self.state, 1.0, False, segment)
        self._stepped |= segment

    @torch.no_grad()
    def _step_late(
        self, gradients: dict[torch.nn.Parameter, torch.Tensor], numbers: list[dict]
    ) -> None:
        """Steps these parameters, whose gradients came after step(), with the numbers that the
        groups had at step()."""
        now = [dict(group) for group in self.param_groups]
        before = {parameter: parameter.grad for parameter in gradients}
        try:
            for group, then in zip(self.param_groups, numbers):
                group.update(then)
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
            self._native.step(self.param_groups, self.state, 1.0, False, set(gradients))
        finally:
            for group, values in zip(self.param_groups, now):
                group.update(values)
            for parameter, own in before.items():
                parameter.grad = own

    def _step_rest(self, wants_norm: bool) -> None:
        """Steps the parameters that step_segment has not stepped, and ends the iteration."""
        stepped, self._stepped = self._stepped, set()
        if wants_norm or getattr(self, "grad_scale", None) is not None:
            raise RuntimeError(
                "hccl: max_norm and scaler come too late: step_segment has made the step"
            )
        rest = {p for group in self.param_groups for p in group["params"]} - stepped
        if rest:
            self._native.step(self.param_groups, self.state, 1.0, False, rest)

    def _needs_all_gradients(self) -> bool:
        """Returns whether the step of one parameter depends on other parameters' gradients."""
        return False

    def _factor(
        self, max_norm: Optional[float], norm_type: float, scaler: Any, process_group: Any
    ) -> Optional[float]:
        """Returns the factor of the gradients in the step, or None to skip the step."""
        factor, norm = self._pending or (1.0, None)
        self._pending = None
        found = getattr(self, "found_inf", None)  # set by torch.amp.GradScaler.step
        if found is not None and found.item() != 0:
            return None
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            factor /= scale.item()
        checks = scaler is not None and scaler.is_enabled()
        if checks:
            stage = scaler._per_optimizer_states[id(self)]
            if stage["stage"] is OptState.STEPPED:
                raise RuntimeError("step() has already been called since the last update().")
            if stage["stage"] is OptState.READY:
                factor = 1.0 / scaler._get_scale_async().double().item()
                norm = self._norm(norm_type, process_group)
                self._record(scaler, norm)
            stage["stage"] = OptState.STEPPED
            if any(found.item() for found in stage["found_inf_per_device"].values()):
                return None
        if max_norm is not None:
            norm = norm or self._norm(norm_type, process_group)
            factor *= self._clip(norm, factor, max_norm)
        return factor

    def gradients(self) -> list:
        """Returns the gradients that are not None."""
        return [
            p.grad for group in self.param_groups for p in group["params"] if p.grad is not None
        ]

    def _norm(self, norm_type: float, process_group: Any = None) -> tuple:
        """Returns (norm, whether all gradients are finite), in one pass over the raw gradients."""
        gradients = self.gradients()
        squares, largest = native.norms(gradients)
        infinite = float(math.isnan(squares) or math.isinf(largest))
        power = squares
        if norm_type not in (2.0, math.inf):
            norm = torch.nn.utils.get_total_norm(gradients, norm_type) if gradients else 0.0
            power = float(norm) ** norm_type
        if process_group is not None:
            power, largest, infinite = self._over_ranks(power, largest, infinite, process_group)
        if norm_type == math.inf:
            norm = math.nan if math.isnan(power) else largest
        else:
            norm = power ** (1.0 / norm_type)
        return norm, infinite == 0

    @staticmethod
    def _over_ranks(power: float, largest: float, infinite: float, process_group: Any) -> tuple:
        sums = torch.tensor([power, infinite], dtype=torch.float64)
        torch.distributed.all_reduce(sums, group=process_group)
        most = torch.tensor(largest, dtype=torch.float64)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX, group=process_group)
        return sums[0].item(), most.item(), sums[1].item()

    def _record(self, scaler: Any, norm: tuple) -> None:
        """Sets the scaler's check for finite gradients to the result that unscale_ would find."""
        found = torch.tensor(0.0 if norm[1] else 1.0)
        scaler._per_optimizer_states[id(self)]["found_inf_per_device"] = {found.device: found}

    def _clip(self, norm: tuple, factor: float, max_norm: float) -> float:
        """Returns the clipping coefficient for `factor` times the gradients. Sets grad_norm."""
        total = norm[0] * abs(factor)
        self.grad_norm = torch.tensor(total, dtype=torch.float32)
        if math.isnan(total):
            return math.nan
        return min(1.0, float(max_norm) / (total + _CLIP_EPS))

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clips the gradients of all groups together, like torch.nn.utils.clip_grad_norm_, and
        returns their norm before the clipping. After a deferred unscale_, only stores the
        coefficient for the step."""
        pending = self._pending
        factor, norm = pending or (1.0, None)
        if norm is None or norm_type != 2.0:
            norm = self._norm(float(norm_type))
        coefficient = self._clip(norm, factor, max_norm)
        if pending is not None:
            self._pending = (factor * coefficient, norm)
        elif coefficient != 1.0:
            native.scale(self.gradients(), coefficient)
        return self.grad_norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._pending = None
        super().zero_grad(set_to_none)

    # ---- Copies and checkpoints. ----

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a state, also one of torch's optimizer of the same name. That optimizer can load
        states of this class, too."""
        super().load_state_dict(state_dict)
        if not self.master_weights:
            return
        # torch has rounded the states to the parameters' type: restore the saved values.
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        own = [p for group in self.param_groups for p in group["params"]]
        for number, parameter in zip(saved, own):
            for name, value in state_dict["state"].get(number, {}).items():
                if torch.is_tensor(value) and name != "step":
                    self.state[parameter][name] = value.clone()

    # Attributes that copies keep. As with torch's optimizers, copies lose the hooks and the step()
    # that a learning-rate scheduler sets.
    _kept: tuple = ("master_weights", "grad_norm", "_pending", "_stepped")

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in self._kept}}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._native = native.Optimizer(self._rule, self)
        self.__dict__.setdefault("_pending", None)
        self.__dict__.setdefault("_stepped", set())
        for group in self.param_groups:
            for name, value in self._missing.items():
                group.setdefault(name, value)


def _step_type() -> torch.dtype:
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


def check(name: str, value: Any, at_least: float = 0.0, below: float = math.inf) -> None:
    """Rejects a number outside [at_least, below), with torch's error text."""
    if not at_least <= value < below:
        raise ValueError(f"Invalid {name}: {value}")


def check_betas(betas: tuple) -> None:
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
