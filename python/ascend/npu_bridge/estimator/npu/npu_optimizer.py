"""Optimizers of TensorFlow 1 and Keras whose gradients are reduced over the ranks."""

from __future__ import annotations

import functools
from typing import Any, Optional

import hccl
import tensorflow as tf
from hccl.tensorflow import _names, _ops, _optimizers, _shares, reduce_gradients
from npu_device.distribute import reduce_values
from npu_device.distribute.hccl_ops import check_fusion

from npu_bridge import _ranks
from npu_bridge.estimator.npu._wrapper import Wrapper
from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer

# The name of a graph's collection of optimizers whose state is divided over the ranks.
SHARDED = "hccl_sharded_optimizers"


def allreduce(tensor: Any, average: bool = True) -> Any:
    """Returns the sum or the mean over the ranks. For IndexedSlices, the result is sparse and has
    the rows of all ranks. Ranks may have different numbers of rows."""
    _ranks.size()
    return reduce_gradients([tensor], "mean" if average else "sum")[0]


def reduce(
    tensor: Any, root_rank: int, average: bool = True, fusion: int = 0, fusion_id: int = -1
) -> Any:
    """Returns the sum or the mean on the root; on other ranks returns the rank's own tensor."""
    size = _ranks.size()
    result = _ops.reduce(tensor, "sum", root_rank)
    if average and _ranks.rank() == root_rank:
        result = tf.divide(result, tf.cast(size, result.dtype))
    return result


def npu_allreduce(
    values: Any,
    reduction: str = "mean",
    fusion: int = 1,
    fusion_id: int = -1,
    group: str = hccl.WORLD,
) -> Any:
    """Reduces one tensor or a list, like npu_device's all_reduce. With one rank, returns the
    argument."""
    size = _ranks.size()
    check_fusion(fusion, fusion_id, (0, 1, 2))
    if size <= 1:
        return values
    if not isinstance(values, (list, tuple)):
        return npu_allreduce([values], reduction, fusion, fusion_id, group)[0]
    return reduce_values(list(values), reduction, group, fusion, size)


def _means(gradients: list, names: list) -> list:
    """Returns the means of the gradients. names: the names of their variables. Dense gradients are
    reduced at once, sparse gradients separately."""
    return gradients if _ranks.size() <= 1 else reduce_gradients(gradients, "mean", names=names)


class NPUDistributedOptimizer(Wrapper):
    """An optimizer of tf.train whose gradients are means over the ranks. With
    is_weight_update_sharding each rank has a share of the variables: it updates this share, stores
    the optimizer's state only for this share, and sends the updated variables to all ranks."""

    def __init__(
        self, optimizer: Any, is_weight_update_sharding: bool = False, name: Optional[str] = None
    ) -> None:
        name = name or f"Distributed{type(optimizer).__name__}"
        super().__init__(use_locking=False, name=name)
        self._opt = optimizer
        self._sharding = is_weight_update_sharding
        self._name_scope = f"{name}_Allreduce"

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        pairs = self._opt.compute_gradients(*args, **kwargs)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        with tf.name_scope(self._name_scope):
            return list(zip(_means(gradients, _names.of(variables)), variables))

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._sharding or _ranks.size() <= 1:
            return self._opt.apply_gradients(grads_and_vars, *args, **kwargs)
        pairs = [pair for pair in grads_and_vars if pair[0] is not None]
        variables = [variable for _, variable in pairs]
        tf.compat.v1.add_to_collection(SHARDED, self._name_scope)
        owned = _shares.owners(variables, _ranks.size())
        own = [pair for pair, owner in zip(pairs, owned) if owner == _ranks.rank()]
        updated = self._opt.apply_gradients(own, *args, **kwargs)
        with tf.control_dependencies([updated]):
            return tf.group(*_shares.give(variables, owned))


class NPUOptimizer(Wrapper):
    """An optimizer with loss scaling (is_loss_scale), with gradients reduced over the ranks
    (is_distributed), or both. With both, all ranks skip a step if a gradient of any rank is not
    finite."""

    def __init__(
        self,
        opt: Any,
        loss_scale_manager: Any = None,
        is_distributed: bool = False,
        is_loss_scale: bool = False,
        is_tailing_optimization: bool = False,
        name: Optional[str] = None,
    ) -> None:
        if is_loss_scale and loss_scale_manager is None:
            raise ValueError("is_loss_scale is True, loss_scale_manager can not be None")
        super().__init__(use_locking=False, name=name or f"NPUOptimizer{type(opt).__name__}")
        self._opt = NPUDistributedOptimizer(opt) if is_distributed else opt
        if is_loss_scale:
            self._opt = NPULossScaleOptimizer(self._opt, loss_scale_manager, is_distributed)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.apply_gradients(*args, **kwargs)


def KerasDistributeOptimizer(  # noqa: N802  a class upstream
    optimizer: Any, name: str = "NpuKerasOptimizer"
) -> Any:
    """Changes a Keras optimizer so that its gradients are means over the ranks, and returns the
    optimizer. The optimizer gets another class, so that a copy made from its configuration, such as
    Estimator's, also reduces."""
    optimizer.__class__ = _reducing(type(optimizer))
    return optimizer


@functools.lru_cache(maxsize=None)
def _reducing(kind: type) -> type:
    name = _optimizers.step_of(kind)
    reduction = _optimizers.Reduction(_means)

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        apply_all = getattr(super(made, self), name)
        return _optimizers.reduced(name, reduction, self, apply_all)(*args, **kwargs)

    def get_config(self: Any) -> dict:
        return _optimizers.marked(super(made, self).get_config)

    _optimizers.reduce_before_tests(kind)
    own = {name: step, "get_config": get_config, "_hccl_reduction": reduction}
    made = type(kind.__name__, (kind,), {**own, "__module__": kind.__module__})
    return made


def npu_distributed_optimizer_wrapper(optimizer: Any) -> Any:
    """Wraps an optimizer of tf.train or Keras, or a Keras optimizer by name."""
    if isinstance(optimizer, str):
        optimizer = tf.keras.optimizers.get(optimizer)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return NPUDistributedOptimizer(optimizer)
    return KerasDistributeOptimizer(optimizer)
