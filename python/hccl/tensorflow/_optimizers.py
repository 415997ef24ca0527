"""Makes optimizers of Keras 2 and 3 reduce gradients before they apply them.

With the policy mixed_float16, `compile` puts Keras's LossScaleOptimizer around an optimizer. The
LossScaleOptimizer makes a step only if the gradients are finite. If gradients were reduced within
that step, a rank with an overflow would omit its collective. So this module also changes
LossScaleOptimizer: gradients are reduced before the test. Then either all ranks make the step or
none.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, Callable, Optional

import hccl
import tensorflow as tf

from hccl import _world
from hccl._horovod import global_process_set
from hccl.tensorflow import _names, _reductions
from hccl.tensorflow._sums import Sums

Apply = Callable[..., Any]
_MARK = "hccl_reducing_"
_WORLD = (global_process_set, hccl.WORLD)


class Reduction:
    """Reduces an optimizer's gradients, once for each step of each replica."""

    def __init__(
        self, reduce: Callable[[list, list], list], sums: Optional[Sums] = None, place: Any = _WORLD
    ) -> None:
        self._reduce, self._sums, self._place = reduce, sums, place
        self._done: set[Any] = set()  # the replicas whose gradients are reduced

    def before(self, apply: Callable[[list], Any], gradients: list, variables: list) -> Any:
        """Reduces the gradients and applies them. In a nested call they are already reduced."""
        if _replica() in self._done:
            return apply(gradients)
        open_ = [not _reductions.is_reduced(gradient, self._place) for gradient in gradients]
        step = functools.partial(self._step, apply, _names.of(variables), open_)
        return step(gradients) if self._sums is None else self._sums.add(gradients, variables, step)

    def _step(
        self, apply: Callable[[list], Any], names: list, open_: list[bool], gradients: list
    ) -> Any:
        reduced = _reductions.reduce_those(self._reduce, open_, gradients, names)
        replica = _replica()
        self._done.add(replica)
        try:
            return apply(reduced)
        finally:
            self._done.discard(replica)


def _replica() -> Any:
    """Returns the owner of a step. Under MirroredStrategy, each replica runs in a thread, and the
    nested calls of LossScaleOptimizer run in other threads, so the owner is the replica. Without a
    strategy the owner is the thread."""
    if not tf.distribute.has_strategy():
        return threading.get_ident()
    context = tf.distribute.get_replica_context()
    if context is None:
        return None
    return f"replica {tf.get_static_value(context.replica_id_in_sync_group)}"


def reducing(
    optimizer: Any, reduce: Callable[[list, list], list], sums: Optional[Sums] = None,
    place: Any = _WORLD,
) -> Any:
    """Changes the optimizer so that it applies the result of reduce(gradients, names of their
    variables). With `sums`, the gradients are the sums of several calls. place: the ranks that take
    part, for _reductions.is_reduced. Returns the same optimizer."""
    reduction = Reduction(reduce, sums, place)
    kind = type(optimizer)
    watch(kind)
    within = with_inner(optimizer)
    for each in within:
        each._hccl_reduction = reduction
    # The innermost optimizer gets the mark, because a LossScaleOptimizer's configuration has no
    # name.
    within[-1].get_config = functools.partial(marked, within[-1].get_config)
    name = step_of(kind)
    setattr(optimizer, name, reduced(name, reduction, optimizer, getattr(optimizer, name)))
    reduce_before_tests(kind)
    return optimizer


def step_of(kind: type) -> str:
    """Returns the name of the method with which an optimizer class makes a step. Keras 3's
    apply_gradients calls apply; Keras 2 has only apply_gradients."""
    return "apply" if hasattr(kind, "apply") else "apply_gradients"


def reduce_before_tests(kind: type) -> None:
    """Changes, once, the LossScaleOptimizer classes of an optimizer class's Keras: if the inner
    optimizer has a reduction, gradients are reduced before the test."""
    name = step_of(kind)
    for scaler in loss_scalers(kind):
        if name in vars(scaler) and not hasattr(vars(scaler)[name], "_hccl_reduces"):
            setattr(scaler, name, _reduced_before_the_test(name, vars(scaler)[name]))


def made(optimizer: Any) -> Any:
    """Returns the Keras optimizer for a name, a configuration, or an optimizer of
    tf.compat.v1.train, which Keras wraps. Returns other optimizers, also those of the package
    tf_keras, unchanged."""
    if hasattr(optimizer, "apply_gradients"):
        if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
            return optimizer
    return tf.keras.optimizers.get(optimizer)


def with_inner(optimizer: Any) -> list[Any]:
    """Returns the optimizer and the optimizers within it."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return [optimizer] if inner is optimizer else [optimizer, *with_inner(inner)]


def marked(get_config: Callable[[], dict]) -> dict:
    """Returns the configuration of a reducing optimizer, with the mark in its name. Keras saves the
    configuration, and makes loaded optimizers and copies from it. Such an optimizer does not
    reduce, because it has Keras's class; the mark shows that it should."""
    config = get_config()
    name = config.get("name", _MARK)  # a user's class may have no name
    return config if name.startswith(_MARK) else {**config, "name": _MARK + name}


def watch(kind: type) -> None:
    """Wraps the step method of the Keras class from which `kind` is derived, once per class. With
    several ranks, the wrapped step raises RuntimeError if the optimizer's name has the mark of
    marked() but the optimizer does not reduce."""
    name = step_of(kind)
    base = next((each for each in reversed(kind.__mro__) if name in vars(each)), None)
    if base is not None and not hasattr(vars(base)[name], "_hccl_watches"):
        setattr(base, name, _watched(vars(base)[name]))


def _watched(method: Apply) -> Apply:
    @functools.wraps(method)
    def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(optimizer, "name", None) or getattr(optimizer, "_name", None) or ""
        if name.startswith(_MARK) and not hasattr(optimizer, "_hccl_reduction") and _world.size() > 1:
            raise RuntimeError(
                "hccl: this optimizer was loaded or copied from one that reduces its gradients over "
                "the ranks, but does not reduce them, so each rank would train alone: load the model "
                "with hccl.tensorflow.load_model, or wrap the optimizer again, for example with "
                "DistributedOptimizer or npu_distributed_keras_optimizer_wrapper"
            )
        return method(optimizer, *args, **kwargs)

    apply._hccl_watches = True  # type: ignore[attr-defined]
    return apply


def reduced(name: str, reduction: Reduction, optimizer: Any, apply_all: Apply) -> Apply:
    def apply(grads: Any, trainable_variables: Optional[Any] = None) -> Any:
        variables = trainable_variables
        if variables is None:
            variables = optimizer._trainable_variables
        return reduction.before(
            lambda reduced: apply_all(reduced, trainable_variables), list(grads), list(variables)
        )

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        return reduction.before(
            lambda reduced: apply_all(list(zip(reduced, variables)), *args, **kwargs),
            gradients,
            variables,
        )

    return apply if name == "apply" else apply_gradients


def _reduced_before_the_test(name: str, method: Apply) -> Apply:
    """Returns a method of LossScaleOptimizer that reduces gradients before the test."""

    @functools.wraps(method)
    def apply(scaler: Any, *args: Any, **kwargs: Any) -> Any:
        reduction = getattr(scaler.inner_optimizer, "_hccl_reduction", None)
        apply_all = functools.partial(method, scaler)
        if reduction is not None:
            apply_all = reduced(name, reduction, scaler, apply_all)
        return apply_all(*args, **kwargs)

    apply._hccl_reduces = True  # type: ignore[attr-defined]
    return apply


def loss_scalers(kind: type) -> list[type]:
    """Returns the LossScaleOptimizer classes of the Keras packages of an optimizer class."""
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    scalers = [
        sys.modules[package].mixed_precision.LossScaleOptimizer
        for package in packages & {"keras", "tf_keras"}
    ]
    # In Keras 2, two subclasses implement LossScaleOptimizer.
    return [each for scaler in scalers for each in (scaler, *scaler.__subclasses__())]


for _kind in (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer):
    watch(_kind)
